"""Baselines that share cache, engine and budget with InfiniPot-V: a few lines each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import CompressionPolicy, PolicyError, VideoTokens
from .hashing import token_priority
from .parameters import check_integer
from .topk import check_keep, top_slots


def _in_every_head(slots: Tensor, tokens: VideoTokens) -> Tensor:
    n_layers, n_heads, _ = tokens.shape
    return slots.expand(n_layers, n_heads, -1).contiguous()


def _newest_slots(tokens: VideoTokens, keep: int) -> Tensor:
    n_tokens = tokens.shape[-1]
    check_keep(keep, n_tokens)
    slots = torch.arange(n_tokens - keep, n_tokens, device=tokens.steps.device)
    return _in_every_head(slots, tokens)


@dataclass
class Full(CompressionPolicy):
    """Keep everything: no cap, no compression. What the bounded policies are compared with."""

    name: ClassVar[str] = "full"

    def target(
        self,
        *,
        stored: int,  # noqa: ARG002
        incoming: int,  # noqa: ARG002
        max_tokens: int,  # noqa: ARG002
        target_tokens: int,  # noqa: ARG002
        tokens_per_step: int,  # noqa: ARG002
    ) -> int | None:
        """Return None: a compression is never due."""
        return None

    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return all slots.

        Raises:
            PolicyError: `keep` is not what is stored, since this policy evicts nothing.
        """
        n_tokens = tokens.shape[-1]
        if keep != n_tokens:
            raise PolicyError(
                f"policy 'full' evicts nothing, so it cannot keep {keep} of {n_tokens} tokens: "
                "choose a bounded policy"
            )
        return _newest_slots(tokens, keep)


@dataclass
class Uniform(CompressionPolicy):
    """Keep an even stride over what is stored, at each compression, alike in every head.

    Survivor m = 0 .. keep - 1 is slot floor(m * N / keep). Applied to its own survivors time and
    again, the stride thins old steps ever further: the older, the sparser.
    """

    name: ClassVar[str] = "uniform"

    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return evenly spaced slots, int64 [L, H, keep]; see the base class."""
        n_tokens = tokens.shape[-1]
        check_keep(keep, n_tokens)
        slots = torch.arange(keep, device=tokens.steps.device) * n_tokens // max(1, keep)
        return _in_every_head(slots, tokens)


@dataclass
class Reservoir(CompressionPolicy):
    """Keep a uniform random sample of every token ever seen, another one in each layer and head.

    Each token has a random priority for life, a hash of its provenance, and the highest stay. What
    was evicted at a compression to C tokens had C higher ones beside it, and these were replaced by
    still higher ones only. So after any number of compressions to C tokens the survivors are the C
    highest priorities of the whole stream: each token ever seen is equally likely to be among them,
    and nothing but the survivors is remembered. What arrived since is there in full.

    Attributes:
        seed: chooses the sample; the same seed and stream give the same survivors.
    """

    name: ClassVar[str] = "reservoir"
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer("seed", self.seed, low=0)

    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the slots of the highest priorities, int64 [L, H, keep]; see the base class."""
        check_keep(keep, tokens.shape[-1])
        rows = tokens.rows
        if tokens.text is not None:
            # Where text is shown moves with the size of the grid; its priority must not.
            rows = rows.masked_fill(tokens.text, -1)
        priority = token_priority(self.seed, tokens.steps, rows, tokens.cols)
        return top_slots(priority, keep)


@dataclass
class SlidingWindow(CompressionPolicy):
    """Keep the most recent tokens (prefix and window, since the prefix is never evicted)."""

    name: ClassVar[str] = "sliding_window"

    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the last `keep` slots, int64 [L, H, keep]; see the base class."""
        return _newest_slots(tokens, keep)


@dataclass
class Recent(CompressionPolicy):
    """Keep the last few steps and nothing else: the simplest control, blind to what was earlier.

    Attributes:
        steps: n, the temporal steps that are stored once a block has been appended. A block that
            alone has more is kept whole, so let a block have n steps at most.
    """

    name: ClassVar[str] = "recent"
    steps: int = 4

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer("steps", self.steps, low=1)

    def check(
        self,
        *,
        max_tokens: int,
        target_tokens: int,  # noqa: ARG002
        tokens_per_step: int,
    ) -> None:
        """Refuse a window that does not fit under the cap; see the base class."""
        window = self.steps * tokens_per_step
        if window <= max_tokens:
            return
        clash = (
            f"steps={self.steps} of {tokens_per_step} tokens are {window} tokens, "
            f"more than max_tokens={max_tokens}"
        )
        most = max_tokens // tokens_per_step
        remedy = f"choose steps <= {most}, or" if most else "lower the resolution of the frames, or"
        raise PolicyError(f"{clash}: {remedy} raise max_tokens")

    def target(
        self,
        *,
        stored: int,
        incoming: int,
        max_tokens: int,
        target_tokens: int,  # noqa: ARG002
        tokens_per_step: int,
    ) -> int | None:
        """Return what to keep so that the last n steps are stored after the append, else None."""
        window = min(self.steps * tokens_per_step, max_tokens)
        if stored == 0 or stored + incoming <= window:
            return None
        return max(0, window - incoming)

    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the last `keep` slots, int64 [L, H, keep]; see the base class."""
        return _newest_slots(tokens, keep)
