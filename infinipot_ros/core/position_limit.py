"""Whether a configuration leaves room on a model's position axes."""

from __future__ import annotations

import logging

from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.errors import ConfigError
from infinipot_ros.core.numbering import Numbering

_LOG = logging.getLogger(__name__)


def check_position_limit(
    config: EngineConfig,
    numbering: Numbering,
    *,
    limit: int,
    around: tuple[int, int],
    patches: int,
    text: int,
) -> None:
    """Refuse a limit too low to work with; warn of a cap whose steps will share positions.

    Args:
        config: of the engine.
        numbering: how the model counts.
        limit: first position id that must not be used.
        around: tokens of the prefix, and of the longest question with its answer.
        patches: most patches of a step.
        text: most text tokens of a step.

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
    if config.policy == "full" or config.positions != "compact":
        return
    span = numbering.most(config.max_tokens // (patches + text), patches, text)
    if span > limit:
        _LOG.warning(
            "the steps that max_tokens %d can hold span %d positions, more than the model's %d: "
            "what is retained will be squeezed together; lower max_tokens",
            config.max_tokens,
            span,
            limit,
        )
