"""Qwen2-VL and Qwen2.5-VL as ModelAdapters, and what Qwen3-VL shares with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from infinipot_ros.core.adapter import EncodedBlock
from infinipot_ros.core.cache import CacheShape
from infinipot_ros.core.numbering import VideoGrid
from infinipot_ros.core.positions import RotarySpec
from infinipot_ros.core.spans import step_interval
from infinipot_ros.models.base import TransformersAdapter
from infinipot_ros.models.patchify import QwenPreprocessor
from infinipot_ros.models.rotary import rotary_axis
from infinipot_ros.models.tokens import special_token

# A stream is cheaper in pixels than a clip: 256 tokens a step let a cap of 4,096 tokens span
# minutes.  The library's own bounds are for single images and reach 16,384 tokens.
_MIN_TOKENS, _MAX_TOKENS = 4, 256


class QwenAdapter(TransformersAdapter):
    """What the Qwen vision-language models have in common: encoder, patches, three-axis RoPE.

    Args:
        name: the model's name as the user gave it.
        model: the family's ``...ForConditionalGeneration`` in eval mode.
        tokenizer: its tokenizer, with chat template.
        processor_config: content of ``preprocessor_config.json``.  ``size`` with ``height`` and
            ``width`` resizes every frame to exactly that; else the smallest number of pixels
            (``min_pixels`` or ``shortest_edge`` of ``size``) is honoured, and the largest
            (``max_pixels`` or ``longest_edge``) bounded to what suits a stream.

    Raises:
        ModelError: the model has layers that cannot be capped.
    """

    # Of the images that the vision encoders were trained with, should the file not say.
    _mean = (0.48145466, 0.4578275, 0.40821073)
    _std = (0.26862954, 0.26130258, 0.27577711)

    def __init__(
        self, name: str, *, model: Any, tokenizer: Any, processor_config: dict[str, Any]
    ) -> None:
        text, vision = model.config.text_config, model.config.vision_config
        super().__init__(
            name,
            model=model,
            decoder=model.model.language_model,
            tokenizer=tokenizer,
            video_token=self._placeholder(name, model.config, tokenizer),
        )
        self._visual = model.model.visual
        self._vision_config = vision
        self._processor_config = processor_config
        self.frames_per_step = int(vision.temporal_patch_size)
        rotary = model.model.language_model.rotary_emb
        parameter = next(self._decoder.parameters())
        self.rotary = RotarySpec(
            inv_freq=rotary.inv_freq.float(),
            axis=self._rotary_axis(
                rotary.mrope_section, len(rotary.inv_freq), rotary.inv_freq.device
            ),
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
        own_most = config.get("max_pixels") or size.get("longest_edge") or _MAX_TOKENS * token
        own_least = config.get("min_pixels") or size.get("shortest_edge") or _MIN_TOKENS * token
        largest = max_pixels or min(int(own_most), _MAX_TOKENS * token)
        return QwenPreprocessor(
            patch_size=patch,
            merge_size=merge,
            frames_per_step=self.frames_per_step,
            mean=tuple(config.get("image_mean", self._mean)),
            std=tuple(config.get("image_std", self._std)),
            min_pixels=min_pixels or min(int(own_least), largest),
            max_pixels=largest,
            fixed_size=fixed,
        )

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
            deepstack=tuple(getattr(output, "deepstack_features", None) or ()),
        )

    @staticmethod
    def _placeholder(name: str, config: Any, tokenizer: Any) -> str:
        """Return what stands for the video in the rendered template."""
        return special_token(name, tokenizer, config.video_token_id)

    @staticmethod
    def _rotary_axis(sections: list[int], frequencies: int, device: torch.device) -> Tensor:
        """Return the position axis of each frequency, int64 ``[frequencies]``."""
        return rotary_axis(sections, frequencies, device)


class Qwen2VLAdapter(QwenAdapter):
    """Adapter of one loaded ``Qwen2VLForConditionalGeneration``."""

    def numbering(self, fps: float) -> VideoGrid:  # noqa: ARG002 (its weights know no seconds)
        """Return how positions are counted: the next step is one further, at any rate."""
        return VideoGrid(1)


class Qwen25VLAdapter(QwenAdapter):
    """Adapter of one loaded ``Qwen2_5_VLForConditionalGeneration``."""

    def numbering(self, fps: float) -> VideoGrid:
        """Return how positions are counted, steps at a whole distance on the temporal axis."""
        return VideoGrid(
            step_interval(
                tokens_per_second=float(self._vision_config.tokens_per_second),
                frames_per_step=self.frames_per_step,
                fps=fps,
            )
        )
