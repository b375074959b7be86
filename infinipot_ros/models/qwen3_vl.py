"""Qwen3-VL as a ModelAdapter: timestamps between the steps, deepstack, interleaved M-RoPE."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from infinipot_ros.core.adapter import Deepstack, StepText
from infinipot_ros.core.errors import ModelError
from infinipot_ros.core.numbering import StepGrids
from infinipot_ros.models.qwen_vl import QwenAdapter
from infinipot_ros.models.tokens import special_token

# Three years: a later step carries this time, so that its text has no more tokens than was said.
_LAST_SECOND = 99_999_999.9


class Qwen3VLAdapter(QwenAdapter):
    """Adapter of one loaded ``Qwen3VLForConditionalGeneration``.

    Every step stands alone, as in the prompts that its weights were trained with:
    ``<0.5 seconds><|vision_start|> patches <|vision_end|>``.  What the chat template writes around
    its video token is replaced by that.
    """

    _mean = _std = (0.5, 0.5, 0.5)

    _last_told = 0, _LAST_SECOND

    def __init__(
        self, name: str, *, model: Any, tokenizer: Any, processor_config: dict[str, Any]
    ) -> None:
        super().__init__(name, model=model, tokenizer=tokenizer, processor_config=processor_config)
        config = model.config
        self._start, self._end = int(config.vision_start_token_id), int(config.vision_end_token_id)

    def numbering(self, fps: float) -> StepGrids:  # noqa: ARG002 (time is in the timestamps)
        """Return how positions are counted: text and grids one behind the other."""
        return StepGrids()

    def step_text(self, step: int, seconds: float) -> StepText:  # noqa: ARG002 (time says it all)
        """Return the step's timestamp and what encloses its patches."""
        # Cut where the tokenizer cuts by itself: before "<", and at the special tokens.
        time = self._template_ids(f"<{min(seconds, _LAST_SECOND):.1f} seconds>")
        return StepText(before=(*time, self._start), after=(self._end,))

    def _deepstack_inputs(self, deepstack: Deepstack | None) -> dict[str, Any]:
        if deepstack is None:
            return {}
        return {
            "visual_pos_masks": deepstack.video.unsqueeze(0),
            "deepstack_visual_embeds": list(deepstack.features),
        }

    @staticmethod
    def _placeholder(name: str, config: Any, tokenizer: Any) -> str:
        ids = config.vision_start_token_id, config.video_token_id, config.vision_end_token_id
        return "".join(special_token(name, tokenizer, token) for token in ids)

    @staticmethod
    def _rotary_axis(sections: list[int], frequencies: int, device: torch.device) -> Tensor:
        """Return the axes: row and column take every third frequency, as many as they have."""
        if (
            len(sections) != 3
            or sum(sections) != frequencies
            or 3 * max(sections[1:]) > frequencies
        ):
            raise ModelError(
                f"mrope_section is {list(sections)}; three numbers with sum {frequencies} are "
                "needed, the last two at most a third of it"
            )
        axis = torch.zeros(frequencies, dtype=torch.int64, device=device)
        for number in (1, 2):
            axis[number : 3 * sections[number] : 3] = number
        return axis
