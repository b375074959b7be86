"""InternVL3 and 3.5 in the format of transformers as a ModelAdapter: numbered frames."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from infinipot_ros.core.adapter import EncodedBlock, StepText
from infinipot_ros.core.errors import ModelError
from infinipot_ros.models.framewise import FramewiseAdapter
from infinipot_ros.models.tokens import special_token
from infinipot_ros.models.whole_images import ImagePreprocessor, image_preprocessor

# A hundred years at 30 fps: a later frame has this number, so that its text has no more tokens
# than said.
_LAST_FRAME = 99_999_999_999


class InternVLAdapter(FramewiseAdapter):
    """Adapter of one loaded ``InternVLForConditionalGeneration``.

    A frame is written ``Frame1: <img>`` patches ``</img>``, counted from 1, and every one but the
    first starts on a new line; the line break after the last one is the template's and belongs to
    the question.

    Args:
        name: the model's name as the user gave it.
        model: ``InternVLForConditionalGeneration`` in eval mode.
        tokenizer: its tokenizer, with a chat template that writes ``<video>`` for a video item.
        processor_config: content of ``preprocessor_config.json``: ``size``, ``resample``,
            ``image_mean`` and ``image_std`` are what the published
            ``video_preprocessor_config.json`` has too, which is not read.  A frame is one tile,
            as the library does it for video.

    Raises:
        ModelError: the model has layers that cannot be capped, or its files do not fit together.
    """

    _last_told = _LAST_FRAME, 0.0

    def __init__(
        self, name: str, *, model: Any, tokenizer: Any, processor_config: dict[str, Any]
    ) -> None:
        super().__init__(
            name,
            model=model,
            decoder=model.model.language_model,
            tokenizer=tokenizer,
            images=_images(name, model.config, processor_config),
            video_token=getattr(tokenizer, "video_token", "<video>"),
        )
        self._encoder = model.model
        start = getattr(tokenizer, "start_image_token", "<img>")
        end = getattr(tokenizer, "end_image_token", "</img>")
        self._start, self._end = (special_token(name, tokenizer, token) for token in (start, end))

    def step_text(self, step: int, seconds: float) -> StepText:  # noqa: ARG002 (frames are counted)
        """Return the frame's number and the tokens around its image."""
        line = "\n" if step else ""
        before = self._template_ids(f"{line}Frame{min(step + 1, _LAST_FRAME)}: {self._start}")
        return StepText(tuple(before), tuple(self._template_ids(self._end)))

    def encode(self, pixels: Tensor, grid: tuple[int, int, int]) -> EncodedBlock:
        """Run the vision encoder; see :class:`ModelAdapter`."""
        features = self._encoder.get_image_features(pixel_values=pixels).pooler_output
        return EncodedBlock(features.flatten(0, 1), *grid)


def _images(name: str, config: Any, processor_config: dict[str, Any]) -> ImagePreprocessor:
    vision, factor = config.vision_config, round(1 / config.downsample_ratio)
    high, wide = (
        size // patch for size, patch in zip(vision.image_size, vision.patch_size, strict=True)
    )
    if high != wide or high < factor or high % factor:
        raise ModelError(
            f"the vision encoder of {name!r} makes {high}x{wide} patches of a frame; they must be "
            f"a square, a multiple of {factor} (1 / downsample_ratio) each way: correct image_size "
            "in the vision_config of its config"
        )
    side = high // factor
    return image_preprocessor(
        processor_config, image_size=vision.image_size[0], rows=side, cols=side
    )
