"""What a step of a stream takes: patches for the encoder, tokens for the cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infinipot_ros.core.errors import ConfigError, ModelError
from infinipot_ros.planning.figures import ModelFigures

_MOST_TOKENS = 256  # of a step, where neither the user nor the model's files say less
_ASPECT = 4 / 3  # of a camera's picture, where only its pixels are known


@dataclass(frozen=True)
class PromptText:
    """Tokens that a family's published tokenizer and template write around a stream.

    Attributes:
        prefix: before the first step, with the model's own system prompt.
        step: at most, around the patches of a step that comes after years.
        template: around a question, with what ends the video.
    """

    prefix: int
    step: int
    template: int


PROMPTS: dict[str, PromptText] = {
    "qwen2_vl": PromptText(15, 0, 6),
    "qwen2_5_vl": PromptText(15, 0, 6),
    "qwen3_vl": PromptText(3, 15, 6),
    "llava_onevision": PromptText(3, 0, 8),
    "llava_next_video": PromptText(5, 0, 8),
    "smolvlm": PromptText(20, 18, 8),
    "internvl": PromptText(3, 17, 6),
}
"""By family; the published tokenizers take every digit of a timestamp for itself."""


@dataclass(frozen=True)
class StepShape:
    """A temporal step.

    Attributes:
        frames: frames that make it.
        patches: patches that the vision encoder sees.
        video_tokens: tokens that the decoder gets for them.
        rows: rows of the smallest grid near a camera's aspect that holds them.
        cols: its columns.
        text: tokens of text around them.
        pixels: of one frame as the encoder takes it.
    """

    frames: int
    patches: int
    video_tokens: int
    rows: int
    cols: int
    text: int
    pixels: int

    @property
    def tokens(self) -> int:
        """Tokens of the step that count against the cap."""
        return self.video_tokens + self.text

    @property
    def places(self) -> int:
        """Places of the grid that a policy sees: text is in a row apart, three rows below."""
        if not self.text:
            return self.rows * self.cols
        return (self.rows + 4) * max(self.cols, self.text)


def step_shape(
    model: ModelFigures,
    preprocessor: Mapping[str, Any] | None,
    *,
    pixels: int = 0,
    text: int | None = None,
) -> StepShape:
    """Return the largest step of a model.

    Args:
        model: its figures.
        preprocessor: content of its preprocessor's files, if there are any.
        pixels: largest frame after resizing, pixels; 0 takes the model's own.
        text: tokens of text around a step; None takes those of the published tokenizer.

    Raises:
        ConfigError: the pixels are too few for a token, or the model takes one size only.
        ModelError: what the preprocessor's file says is no size.
    """
    vision = model.vision
    words = PROMPTS[model.family].step if text is None else text
    if vision.image:
        if 0 < pixels < vision.image**2:
            raise ConfigError(
                f"pixels is {pixels}, but models of the family {model.family!r} take one frame "
                f"size, here {vision.image}x{vision.image}; leave it out"
            )
        patches = vision.image // vision.patch
        side = round(patches / vision.merge)
        return StepShape(1, patches**2, side**2, side, side, words, vision.image**2)
    factor = round(vision.patch * vision.merge)
    tokens = _qwen_tokens(factor, preprocessor or {}, pixels)
    patches = tokens * round(vision.merge) ** 2
    rows = max(1, round(math.sqrt(tokens / _ASPECT)))
    cols = -(-tokens // rows)
    return StepShape(vision.frames, patches, tokens, rows, cols, words, tokens * factor**2)


def _qwen_tokens(factor: int, preprocessor: Mapping[str, Any], pixels: int) -> int:
    """Return the video tokens of the largest step.

    Args:
        factor: pixels of a token's side.
        preprocessor: content of the preprocessor's files.
        pixels: largest frame; 0 takes the model's own.
    """
    size = preprocessor.get("size") or {}
    try:
        if "height" in size and not pixels:
            tokens = (int(size["height"]) // factor) * (int(size["width"]) // factor)
            what = f"size in the preprocessor's files is {size}"
        else:
            most = _MOST_TOKENS * factor**2
            own = min(int(preprocessor.get("max_pixels") or size.get("longest_edge") or most), most)
            tokens = (pixels or own) // factor**2
            what = f"pixels is {pixels}" if pixels else f"the model's files allow {own} pixels"
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise ModelError(
            f"size or max_pixels in the preprocessor's files cannot be read: {error}"
        ) from error
    if tokens < 1:
        raise ConfigError(
            f"{what}; a token takes {factor}x{factor} pixels, so at least {factor**2} are needed"
        )
    return tokens
