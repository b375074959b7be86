"""Whether a load has room on the position axes of a model, by the rules of the engine itself."""

from __future__ import annotations

from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.errors import ConfigError
from infinipot_ros.core.position_limit import require_positions, span_and_room
from infinipot_ros.core.spans import (
    Spans,
    StepGridsSpans,
    TokenByTokenSpans,
    VideoGridSpans,
    step_interval,
)
from infinipot_ros.planning.figures import ModelFigures
from infinipot_ros.planning.frames import StepShape


def check_positions(
    config: EngineConfig, model: ModelFigures, step: StepShape, *, around: tuple[int, int]
) -> str:
    """Return what an engine would warn of at its start, empty for nothing.

    Args:
        config: of the engine.
        model: its figures.
        step: a temporal step.
        around: tokens of the prefix, and of the longest question with its answer.

    Raises:
        ConfigError: an engine would refuse the model's limit.
    """
    spans = _spans(config, model, step)
    limit, patches, text = model.text.positions, step.video_tokens, step.text
    try:
        require_positions(config, spans, limit=limit, around=around, patches=patches, text=text)
    except ConfigError as error:
        raise ConfigError(f"the model was made for {limit:,} positions: {error}") from error
    span, room = span_and_room(
        config, spans, limit=limit, around=around, patches=patches, text=text
    )
    if span <= room:
        return ""
    return (
        f"what the cap can hold may span {span:,} positions, more than the {room:,} that are left "
        f"to it of the {limit:,} that the model was made for: it will then be squeezed together; "
        "lower the cap"
    )


def _spans(config: EngineConfig, model: ModelFigures, step: StepShape) -> Spans:
    """Return how the adapter of the model's family counts."""
    if model.family == "qwen3_vl":
        return StepGridsSpans()
    if model.text.axes == 1:
        return TokenByTokenSpans()
    if not model.vision.per_second:
        return VideoGridSpans(1)
    return VideoGridSpans(
        step_interval(
            tokens_per_second=model.vision.per_second, frames_per_step=step.frames, fps=config.fps
        )
    )
