"""Qwen2.5-VL: ``Qwen2_5_VLForConditionalGeneration`` as a ModelAdapter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from infinipot_ros.core.adapter import EncodedBlock
from infinipot_ros.core.cache import CacheShape
from infinipot_ros.core.errors import ModelError
from infinipot_ros.core.positions import RotarySpec
from infinipot_ros.models.base import TransformersAdapter, rotary_axis, stop_ids_of
from infinipot_ros.models.patchify import QwenPreprocessor

# A stream is cheaper in pixels than a clip: 256 tokens a step let a cap of 4,096 tokens span
# minutes.  The library's own bounds are for single images and reach 16,384 tokens.
_MIN_TOKENS, _MAX_TOKENS = 4, 256


class Qwen25VLAdapter(TransformersAdapter):
    """Adapter of one loaded Qwen2.5-VL model.

    Args:
        name: the model's name as the user gave it.
        model: ``Qwen2_5_VLForConditionalGeneration`` in eval mode.
        tokenizer: its tokenizer, with chat template.
        processor_config: content of ``preprocessor_config.json``.  ``size`` with ``height`` and
            ``width`` resizes every frame to exactly that; else ``min_pixels`` is honoured and
            ``max_pixels`` bounded to what suits a stream.

    Raises:
        ModelError: the model has layers that cannot be capped.
    """

    def __init__(
        self, name: str, *, model: Any, tokenizer: Any, processor_config: dict[str, Any]
    ) -> None:
        text, vision = model.config.text_config, model.config.vision_config
        super().__init__(
            name,
            tokenizer=tokenizer,
            decoder=model.model.language_model,
            head=model.lm_head,
            stop_ids=stop_ids_of(model, tokenizer),
            video_token=tokenizer.convert_ids_to_tokens(model.config.video_token_id),
        )
        if any(kind != "full_attention" for kind in text.layer_types):
            raise ModelError(
                f"{name!r} has sliding-window layers; they forget by themselves and cannot be "
                "capped honestly: set use_sliding_window to false in its config"
            )
        self._visual = model.model.visual
        self._vision_config = vision
        self._processor_config = processor_config
        self.frames_per_step = int(vision.temporal_patch_size)
        self.position_limit = int(text.max_position_embeddings)
        rotary = model.model.language_model.rotary_emb
        parameter = next(self._decoder.parameters())
        self.rotary = RotarySpec(
            inv_freq=rotary.inv_freq.float(),
            axis=rotary_axis(rotary.mrope_section, len(rotary.inv_freq), rotary.inv_freq.device),
        )
        self.shape = CacheShape(
            layers=text.num_hidden_layers,
            kv_heads=text.num_key_value_heads,
            head_dim=2 * len(rotary.inv_freq),
            axes=3,
            dtype=parameter.dtype,
            device=parameter.device,
        )

    def preprocessor(self, min_pixels: int, max_pixels: int) -> QwenPreprocessor:
        """Return a preprocessor; 0 takes the model's own bounds."""
        config = self._processor_config
        patch, merge = self._vision_config.patch_size, self._vision_config.spatial_merge_size
        token = (patch * merge) ** 2
        size = config.get("size") or {}
        fixed = None
        if "height" in size and not (min_pixels or max_pixels):
            fixed = (int(size["height"]), int(size["width"]))
        largest = max_pixels or min(
            int(config.get("max_pixels", _MAX_TOKENS * token)), _MAX_TOKENS * token
        )
        smallest = min_pixels or min(int(config.get("min_pixels", _MIN_TOKENS * token)), largest)
        return QwenPreprocessor(
            patch_size=patch,
            merge_size=merge,
            frames_per_step=self.frames_per_step,
            mean=tuple(config.get("image_mean", (0.48145466, 0.4578275, 0.40821073))),
            std=tuple(config.get("image_std", (0.26862954, 0.26130258, 0.27577711))),
            min_pixels=smallest,
            max_pixels=largest,
            fixed_size=fixed,
        )

    def step_interval(self, fps: float) -> int:
        """Return the distance of two steps on the temporal axis.

        The library truncates ``step * seconds_per_step * tokens_per_second``; a whole interval is
        the same where that product is whole (2 fps: 2 for the published models) and keeps steps
        evenly spaced, and re-indexing exact, where it is not.
        """
        per_second = float(self._vision_config.tokens_per_second)
        return max(1, round(per_second * self.frames_per_step / fps))

    def encode(self, pixels: Tensor, grid: tuple[int, int, int]) -> EncodedBlock:
        """Run the vision encoder; see :class:`ModelAdapter`."""
        # Each step attends within itself, so encoding block by block equals encoding at once.
        output = self._visual(
            pixels.to(self._visual.dtype),
            grid_thw=torch.tensor([grid], device=pixels.device),
        )
        merge = self._vision_config.spatial_merge_size
        return EncodedBlock(
            embeddings=output.pooler_output,
            steps=grid[0],
            rows=grid[1] // merge,
            cols=grid[2] // merge,
        )
