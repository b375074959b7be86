"""EngineConfig: what a user may set on a memory, checked before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from infinipot_ros.core.errors import ConfigError

PositionMode = Literal["compact", "absolute"]


@dataclass(frozen=True)
class EngineConfig:
    """Configuration of one StreamEngine.

    Attributes:
        max_tokens: M, hard cap on stored tokens of the stream per layer and KV head; text that a
            model writes between steps is counted too.
        policy: name of the compression policy (see ``infinipot_ros.compression.POLICIES``).
        policy_params: parameters of the policy, by name.
        retain_ratio: C / M, share of the cap that a compression leaves, in (0, 1).
        block_steps: temporal steps that are prefilled together.
        fps: sampling rate of the frames that will be observed, frames per second; sets the
            distance of two steps on the temporal position axis.
        positions: ``compact`` re-indexes retained steps before ``position_limit`` is passed,
            ``absolute`` keeps the original positions and warns when it is passed.
        position_limit: first position id that must not be used; 0 takes the model's own limit.
        max_question_tokens: longest question, tokens.
        max_new_tokens: longest answer, tokens.
        max_dialogue_tokens: earlier turns that a question may bring along, tokens; 0 for none.
        system_prompt: replaces the model's own system prompt; None keeps it.
        min_pixels: smallest frame after resizing, pixels; 0 takes the model's own value.
        max_pixels: largest frame after resizing, pixels; 0 takes the model's own value.
        seed: seed of policies that draw at random.

    Raises:
        ConfigError: on construction, for the first field that cannot work.
    """

    max_tokens: int = 4096
    policy: str = "multi_tar"
    policy_params: Mapping[str, object] = field(default_factory=dict)
    retain_ratio: float = 0.75
    block_steps: int = 4
    fps: float = 2.0
    positions: PositionMode = "compact"
    position_limit: int = 0
    max_question_tokens: int = 128
    max_new_tokens: int = 64
    max_dialogue_tokens: int = 0
    system_prompt: str | None = None
    min_pixels: int = 0
    max_pixels: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (
            ("max_tokens", 2),
            ("block_steps", 1),
            ("position_limit", 0),
            ("max_question_tokens", 1),
            ("max_new_tokens", 1),
            ("max_dialogue_tokens", 0),
            ("min_pixels", 0),
            ("max_pixels", 0),
        ):
            self._require_int(name, low)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ConfigError(f"seed is {self.seed!r}; it must be an integer")
        if not _is_number(self.retain_ratio) or not 0.0 < self.retain_ratio < 1.0:
            raise ConfigError(
                f"retain_ratio is {self.retain_ratio!r}; it must lie inside (0, 1), 0.75 is usual"
            )
        if not _is_number(self.fps) or not 0.0 < self.fps <= 1000.0:
            raise ConfigError(
                f"fps is {self.fps!r}; it must lie in (0, 1000] frames per second, 2.0 is usual"
            )
        if self.positions not in get_args(PositionMode):
            raise ConfigError(
                f"positions is {self.positions!r}; it must be one of "
                + ", ".join(repr(mode) for mode in get_args(PositionMode))
            )
        if self.min_pixels and self.max_pixels and self.min_pixels > self.max_pixels:
            raise ConfigError(
                f"min_pixels is {self.min_pixels}, above max_pixels {self.max_pixels}; "
                "lower the first or raise the second"
            )
        if not isinstance(self.policy, str):
            raise ConfigError(f"policy is {self.policy!r}; it must be the name of one, a text")
        if not isinstance(self.policy_params, Mapping):
            raise ConfigError(
                f"policy_params is {self.policy_params!r}; it must map names to values, "
                "{} takes what the policy has by default"
            )
        # A copy that nobody can change behind our back: the engine reads it on every reset.
        object.__setattr__(self, "policy_params", MappingProxyType(dict(self.policy_params)))

    @property
    def target_tokens(self) -> int:
        """C, the video tokens per layer and head that a compression leaves."""
        return max(1, round(self.retain_ratio * self.max_tokens))

    @property
    def cache_tokens(self) -> int:
        """Slots of a capped cache beside the prompt's template: the cap and room for a question."""
        question = self.max_question_tokens + self.max_dialogue_tokens + self.max_new_tokens
        return self.max_tokens + question

    def check_block(self, tokens_per_step: int) -> None:
        """Refuse a cap that cannot hold blocks of the given step size.

        Args:
            tokens_per_step: largest number of video tokens of one temporal step.

        Raises:
            ConfigError: the cap is smaller than two blocks, or a block does not fit in M - C.
        """
        block = self.block_steps * tokens_per_step
        room = self.max_tokens - self.target_tokens
        if self.max_tokens < 2 * block:
            raise ConfigError(
                f"max_tokens is {self.max_tokens}, smaller than two blocks: a block has "
                f"{self.block_steps} steps of {tokens_per_step} tokens = {block} tokens; raise "
                f"max_tokens to at least {2 * block}, or lower block_steps"
            )
        if block > room:
            # Near the smallest that can do, so that rounding is all that is left to search.
            fitting = max(2 * block, math.floor((block - 0.5) / (1.0 - self.retain_ratio)) - 1)
            while fitting - round(self.retain_ratio * fitting) < block:
                fitting += 1
            raise ConfigError(
                f"a block of {block} tokens ({self.block_steps} steps of {tokens_per_step}) does "
                f"not fit in the {room} tokens that a compression frees (max_tokens "
                f"{self.max_tokens}, retain_ratio {self.retain_ratio}); raise max_tokens to at "
                f"least {fitting}, or lower retain_ratio or block_steps"
            )

    def _require_int(self, name: str, low: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ConfigError(f"{name} is {value!r}; it must be an integer of at least {low}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
