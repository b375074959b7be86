"""SmolVLM2 as a ModelAdapter: a timestamp and an image prompt for every frame."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from infinipot_ros.core.adapter import EncodedBlock, StepText
from infinipot_ros.core.errors import ConfigError, ModelError
from infinipot_ros.models.base import text_item
from infinipot_ros.models.framewise import FramewiseAdapter
from infinipot_ros.models.tokens import special_token
from infinipot_ros.models.whole_images import ImagePreprocessor, image_preprocessor

_VIDEO = "<video>"
_INTRO = "You are provided the following series of frames from a video.\n"
_OUTRO = "\n\n"
# Nineteen years: a later frame carries this time, so that its text has no more tokens than said.
_LAST_MINUTE = 9_999_999


@dataclass(frozen=True, kw_only=True)
class SquareFrames(ImagePreprocessor):
    """Resize frames the way of the library: first to a longest edge, then to a square.

    Attributes:
        longest_edge: of the first step, pixels.
    """

    longest_edge: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest_edge < 1:
            raise ConfigError(
                f"longest_edge is {self.longest_edge} pixels; a frame has at least one"
            )

    def _resize(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        high, wide = frame.shape[:2]
        aspect = wide / high
        if wide >= high:
            size = (self.longest_edge, _even(self.longest_edge / aspect))
        else:
            size = (_even(self.longest_edge * aspect), self.longest_edge)
        resample = Image.Resampling(self.resample)
        image = Image.fromarray(np.ascontiguousarray(frame)).resize(size, resample)
        return np.asarray(image.resize((self.width, self.height), resample))


class SmolVLMAdapter(FramewiseAdapter):
    r"""Adapter of one loaded ``SmolVLMForConditionalGeneration`` (SmolVLM2-500M, 2.2B).

    A frame is written ``\nFrame from MM:SS:`` and a single-image prompt; minutes go on past 99.
    Before the first one the library says "You are provided the following series of N frames from a
    H:MM:SS [H:MM:SS] video."  An endless stream has no such number and duration, so the prefix has
    the same sentence without them, "... series of frames from a video.".  The line breaks that end
    a video belong to the question.

    A model's own chat template need not know video items (the library puts another in its place
    where there are any); here the video reaches it as text, which gives the same prompt.

    Args:
        name: the model's name as the user gave it.
        model: ``SmolVLMForConditionalGeneration`` in eval mode.
        tokenizer: its tokenizer, with chat template.
        processor_config: content of ``preprocessor_config.json``, which holds the keys for video
            too: ``video_sampling.video_size`` and ``max_image_size``, ``resample``, ``image_mean``,
            ``image_std``.  A ``video_preprocessor_config.json`` is not read.  Frames are never
            split into tiles, as the library does it for video.

    Raises:
        ModelError: the model has layers that cannot be capped, or its files do not fit together.
    """

    _last_told = 0, 60.0 * _LAST_MINUTE + 59.0

    def __init__(
        self, name: str, *, model: Any, tokenizer: Any, processor_config: dict[str, Any]
    ) -> None:
        fake = getattr(tokenizer, "fake_image_token", "<fake_token_around_image>")
        whole = getattr(tokenizer, "global_image_token", "<global-img>")
        self._fake, self._global = (special_token(name, tokenizer, t) for t in (fake, whole))
        super().__init__(
            name,
            model=model,
            decoder=model.model.text_model,
            tokenizer=tokenizer,
            images=_images(name, model.config, processor_config),
            video_token=_VIDEO,
        )
        self._vision = model.model.vision_model
        self._connector = model.model.connector

    def step_text(self, step: int, seconds: float) -> StepText:  # noqa: ARG002 (time says it all)
        """Return the frame's timestamp and the tokens around its image."""
        minute, second = divmod(int(seconds), 60)
        time = f"{min(minute, _LAST_MINUTE):02d}:{second:02d}"
        before = self._template_ids(f"\nFrame from {time}:{self._fake}{self._global}")
        return StepText(tuple(before), tuple(self._template_ids(self._fake)))

    def encode(self, pixels: Tensor, grid: tuple[int, int, int]) -> EncodedBlock:
        """Run the vision encoder; see :class:`ModelAdapter`."""
        # Not get_image_features: it takes an image of zeros for padding and drops it.
        hidden = self._vision(pixel_values=pixels.to(self._vision.dtype)).last_hidden_state
        return EncodedBlock(self._connector(hidden).flatten(0, 1), *grid)

    def _apply_template(self, messages: list[dict[str, Any]]) -> str:
        video = text_item(_INTRO + _VIDEO + _OUTRO)
        return super()._apply_template(
            [
                {**message, "content": [_text_or(item, video) for item in message["content"]]}
                for message in messages
            ]
        )


def _text_or(item: dict[str, str], video: dict[str, str]) -> dict[str, str]:
    return video if item["type"] == "video" else item


def _even(length: float) -> int:
    """Return the length rounded down to a whole number, one more where that is odd."""
    whole = int(length)
    return max(1, whole + whole % 2)


def _images(name: str, config: Any, processor_config: dict[str, Any]) -> SquareFrames:
    vision, factor = config.vision_config, int(config.scale_factor)
    square = processor_config.get("max_image_size") or {}
    side = int(square.get("longest_edge", vision.image_size))
    patches = side // int(vision.patch_size)
    if patches < factor or patches % factor:
        raise ModelError(
            f"{name!r} resizes frames to {side} pixels, {patches} patches of {vision.patch_size}; "
            f"they must be a multiple of its scale_factor {factor}: correct max_image_size in "
            "preprocessor_config.json"
        )
    squares = image_preprocessor(
        {
            "image_mean": (0.5, 0.5, 0.5),
            "image_std": (0.5, 0.5, 0.5),
            "resample": Image.Resampling.LANCZOS.value,
            **processor_config,
            "size": {"height": side, "width": side},  # the file's own is for tiles of images
        },
        image_size=side,
        rows=patches // factor,
        cols=patches // factor,
    )
    size = (processor_config.get("video_sampling") or {}).get("video_size") or {}
    return SquareFrames(**asdict(squares), longest_edge=int(size.get("longest_edge", side)))
