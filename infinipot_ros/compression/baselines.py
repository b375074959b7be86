"""Baselines that share the cache, the engine and the budget of InfiniPot-V: a few lines each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import CompressionPolicy, PolicyError, VideoTokens
from .hashing import token_priority
from .parameters import check_integer
from .topk import check_keep, top_slots


def _same_slots_everywhere(slots: Tensor, tokens: VideoTokens) -> Tensor:
    n_layers, n_heads, _ = tokens.shape
    return slots.expand(n_layers, n_heads, -1).contiguous()


def _newest_slots(tokens: VideoTokens, keep: int) -> Tensor:
    n_tokens = tokens.shape[-1]
    check_keep(keep, n_tokens)
    slots = torch.arange(n_tokens - keep, n_tokens, device=tokens.steps.device)
    return _same_slots_everywhere(slots, tokens)


@dataclass
class Full(CompressionPolicy):
    """Keep everything: no cap, no compression; what the bounded policies are compared with."""

    name: ClassVar[str] = "full"

    def target(
        self,
        *,
        stored: int,
        incoming: int,
        max_tokens: int,
        target_tokens: int,
        tokens_per_step: int,
    ) -> int | None:
        """Return None: a compression is never due."""
        return None

    def select(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return all slots.

        Raises:
            PolicyError: `keep` differs from what is stored, since this policy evicts nothing.
        """
        n_tokens = tokens.shape[-1]
        if keep != n_tokens:
            raise PolicyError(
                f"policy 'full' evicts nothing and cannot keep {keep} of {n_tokens} tokens: choose a bounded policy"
            )
        return _newest_slots(tokens, keep)


@dataclass
class Uniform(CompressionPolicy):
    """Keep an even stride over what is stored, at each compression, alike in all layers and heads.

    Slot m of the survivors is floor(m * N / keep), m = 0 .. keep - 1.
    """

    name: ClassVar[str] = "uniform"

    def select(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return evenly spaced slots, int64 [L, H, keep]; see the base class."""
        n_tokens = tokens.shape[-1]
        check_keep(keep, n_tokens)
        slots = torch.arange(keep, device=tokens.steps.device) * n_tokens // max(1, keep)
        return _same_slots_everywhere(slots, tokens)


@dataclass
class Reservoir(CompressionPolicy):
    """Keep a uniform random sample of every token ever seen, drawn anew per layer and head.

    Each token has a fixed random priority, a hash of its provenance, and the highest ones stay. A
    token that has been evicted was beaten by `keep` others which only better ones have replaced
    since, so after any number of compressions to the same size the survivors are the `keep` highest
    priorities of the whole stream: each token ever seen is equally likely to be among them, and
    nothing but the survivors has to be remembered. (Tokens that arrived after the last compression
    are all still there.)

    Attributes:
        seed: chooses the sample; the same seed and stream give the same survivors.
    """

    name: ClassVar[str] = "reservoir"
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer("seed", self.seed, low=0)

    def select(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the slots of the highest priorities, int64 [L, H, keep]; see the base class."""
        check_keep(keep, tokens.shape[-1])
        return top_slots(token_priority(self.seed, tokens.steps, tokens.rows, tokens.cols), keep)


@dataclass
class SlidingWindow(CompressionPolicy):
    """Keep the most recent tokens (the prefix is never evicted, so this is prefix + window)."""

    name: ClassVar[str] = "sliding_window"

    def select(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the last `keep` slots, int64 [L, H, keep]; see the base class."""
        return _newest_slots(tokens, keep)


@dataclass
class Recent(CompressionPolicy):
    """Keep the last few steps and nothing else: the simplest control, blind to everything earlier.

    Attributes: steps: number n of temporal steps that are stored once a block has been appended. A
        block that alone has
            more steps than that is kept whole; make blocks no longer than n steps.
    """

    name: ClassVar[str] = "recent"
    steps: int = 4

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer("steps", self.steps, low=1)

    def check(self, *, max_tokens: int, target_tokens: int, tokens_per_step: int) -> None:
        """Refuse a window that does not fit under the cap; see the base class."""
        wanted = self.steps * tokens_per_step
        if wanted > max_tokens:
            raise PolicyError(
                f"steps={self.steps} of {tokens_per_step} tokens are {wanted} tokens, more than the cap "
                f"max_tokens={max_tokens}: choose steps <= {max_tokens // tokens_per_step} or raise max_tokens"
            )

    def target(
        self,
        *,
        stored: int,
        incoming: int,
        max_tokens: int,
        target_tokens: int,
        tokens_per_step: int,
    ) -> int | None:
        """Return what to keep so that exactly the last n steps are stored after the append, else None."""
        window = min(self.steps * tokens_per_step, max_tokens)
        if stored + incoming <= window or stored == 0:
            return None
        return max(0, window - incoming)

    def select(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the last `keep` slots, int64 [L, H, keep]; see the base class."""
        return _newest_slots(tokens, keep)
