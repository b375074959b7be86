"""What a compression policy sees, and the one method it overrides.

A policy looks at tensors and provenance and says which slots stay. It never sees a question, a
model or the
cache object, so that nothing about a question can influence what is kept: the view below has no
    such field.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

KEY_SPACES = ("content", "rotated")


class PolicyError(ValueError):
    """Report a policy, a policy parameter or a combination of sizes that is refused."""


@dataclass(frozen=True)
class VideoTokens:
    """Show the stored video tokens of one stream, read-only, in stream order.

    All layers and heads hold the same number N of tokens; *which* tokens differs per layer and head
    after the first compression. Use the provenance below to say where a token comes from, never its
    slot number.

    Attributes: values: [L, H, N, D] value vectors as stored (any floating dtype, any device, may be
        strided). steps: int64 [L, H, N], temporal step since the start of the stream,
        non-decreasing along N. rows: int64 [L, H, N], patch row i in the grid of the token's own
        step, after spatial merging. cols: int64 [L, H, N], patch column j, likewise. A (step, row,
        column) occurs at most once per head. max_tokens: M, the cap on stored video tokens per
        layer and head. tokens_per_step: number of tokens of the newest step (the grid may change in
        mid-stream). key_source: (layer slice, "content" | "rotated") -> keys [l, H, N, D] of those
        layers; "content" has the
            rotary position undone. Computed on demand: ask for few layers at a time and the
            temporary stays small.
    """

    values: Tensor
    steps: Tensor
    rows: Tensor
    cols: Tensor
    max_tokens: int
    tokens_per_step: int
    key_source: Callable[[slice, str], Tensor]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (layers, KV heads, tokens per layer and head)."""
        n_layers, n_heads, n_tokens = self.steps.shape
        return n_layers, n_heads, n_tokens

    def keys(self, layers: slice, space: str) -> Tensor:
        """Return the keys [l, H, N, D] of a slice of layers, with ("rotated") or without ("content") RoPE.

        Raises:
            PolicyError: unknown key space.
        """
        if space not in KEY_SPACES:
            raise PolicyError(
                f"key space {space!r} is unknown: choose one of {', '.join(KEY_SPACES)}"
            )
        return self.key_source(layers, space)


class CompressionPolicy(ABC):
    """Choose which stored video tokens survive a compression.

    A subclass is a dataclass whose fields are its parameters, validated on construction, and
    overrides `select`; the rest has defaults. One instance serves one stream.

    A policy may keep per-stream state (kernels chosen once, a running mean of keys, a score given
    to a token at its first sight). For one stream, the slots that the last `select` returned are,
    in that order, slots 0..keep-1 of the next call, and everything behind them has arrived since:
    state per token follows by gathering it with the returned slots. `reset` forgets all of it.
    """

    name: ClassVar[str]

    def check(self, *, max_tokens: int, target_tokens: int, tokens_per_step: int) -> None:  # noqa: B027
        """Refuse sizes under which this policy cannot do what it promises; the default accepts all.

        Args:
            max_tokens: M, cap per layer and head.
            target_tokens: C, what a compression leaves.
            tokens_per_step: tokens of one temporal step.

        Raises:
            PolicyError: naming the clashing numbers and the remedy.
        """

    def target(
        self,
        *,
        stored: int,
        incoming: int,
        max_tokens: int,
        target_tokens: int,
        tokens_per_step: int,
    ) -> int | None:
        """Return how many tokens to keep before `incoming` more are appended, or None when nothing is due.

        The default compresses when the block would pass the cap, to C tokens, or to fewer when a
        block larger than M - C needs the room, so that the cap holds at every moment.
        """
        if stored + incoming <= max_tokens:
            return None
        return max(0, min(target_tokens, max_tokens - incoming, stored))

    @abstractmethod
    def select(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the slots that stay: int64 [L, H, keep], distinct and ascending per layer and head.

        Equal scores are decided for the lower slot (the older token), on every device, so that a
        run can be repeated exactly. A token whose score is not finite is the first to go.

        Raises:
            PolicyError: `keep` is negative or exceeds the number of stored tokens.
        """

    def reset(self) -> None:  # noqa: B027
        """Forget everything learnt from the current stream; the default has nothing to forget."""
