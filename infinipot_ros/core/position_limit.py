"""Whether a configuration leaves room on a model's position axes."""

from __future__ import annotations

import logging

from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.errors import ConfigError
from infinipot_ros.core.spans import Spans

_LOG = logging.getLogger(__name__)


def check_position_limit(
    config: EngineConfig,
    numbering: Spans,
    *,
    limit: int,
    fixed: int | None,
    around: tuple[int, int],
    patches: int,
    text: int,
) -> None:
    """Refuse a limit too low to work with; warn of a cap whose steps will share positions.

    Args:
        config: of the engine.
        numbering: how the model counts.
        limit: first position id that must not be used.
        fixed: the model's own limit, where it cannot be passed.
        around: tokens of the prefix, and of the longest question with its answer.
        patches: most patches of a step.
        text: most text tokens of a step.

    Raises:
        ConfigError: naming the limit and the least that would do.
    """
    if fixed is not None and (limit > fixed or config.positions != "compact"):
        raise ConfigError(
            f"position_limit is {config.position_limit} and positions {config.positions!r}, but "
            f"this model turns its keys otherwise from position {fixed} on (dynamic RoPE): set "
            f"positions to 'compact' and position_limit to at most {fixed}"
        )
    require_positions(config, numbering, limit=limit, around=around, patches=patches, text=text)
    span, room = span_and_room(
        config, numbering, limit=limit, around=around, patches=patches, text=text
    )
    if span > room and config.policy != "full" and config.positions == "compact":
        # A head that keeps one patch of each of hundreds of steps is rare: whole steps decide
        # whether the user should know at once.
        whole = numbering.most(config.max_tokens // (patches + text), patches, text)
        _LOG.log(
            logging.WARNING if whole > room else logging.INFO,
            "max_tokens %d may come to span %d positions, and %d of the model's %d are left for "
            "them: where these do not suffice, neighbours share one, and their order is lost; "
            "a lower max_tokens avoids it",
            config.max_tokens,
            span,
            room,
            limit,
        )


def require_positions(
    config: EngineConfig,
    numbering: Spans,
    *,
    limit: int,
    around: tuple[int, int],
    patches: int,
    text: int,
) -> None:
    """Refuse a limit too low to work with; arguments as of :func:`check_position_limit`.

    Raises:
        ConfigError: naming the limit and the least that would do.
    """
    prefix, reserve = around
    least = prefix + 2 * (numbering.most(config.block_steps, patches, text) + reserve)
    if limit < least:
        raise ConfigError(
            f"position_limit is {limit}; prefix, two blocks and a question need at least {least} "
            "positions; raise it, or lower block_steps, max_question_tokens, max_dialogue_tokens "
            "or max_new_tokens"
        )


def span_and_room(
    config: EngineConfig,
    numbering: Spans,
    *,
    limit: int,
    around: tuple[int, int],
    patches: int,
    text: int,
) -> tuple[int, int]:
    """Return the most positions that what the cap can hold may span, and how many are left to it.

    Arguments as of :func:`check_position_limit`.
    """
    prefix, reserve = around
    last = limit - numbering.most(config.block_steps, patches, text) - reserve
    span = numbering.held(config.max_tokens, patches, text)
    return span, compacted_end(prefix, last) - prefix


def compacted_end(start: int, last: int) -> int:
    """Return the position below which a memory is re-indexed: a quarter of the range stays free.

    Args:
        start: first position after the prefix.
        last: first position at which a block and a question would no longer fit.
    """
    return last - (last - start) // 4
