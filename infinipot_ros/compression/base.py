"""What a compression policy sees, and the one method it overrides.

A policy looks at tensors and provenance and says which slots stay. It never sees a question, a
model or the cache object: the view below has no field through which a question could influence
what is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .step_text import with_step_text

KEY_SPACES = ("content", "rotated")


class PolicyError(ValueError):
    """Report a policy, a policy parameter or a combination of sizes that is refused."""


@dataclass(frozen=True)
class VideoTokens:
    """Show the stored video tokens of one stream, read-only, in stream order.

    All layers and heads hold the same number N of tokens, but after the first compression each
    holds others. Where a token comes from is said by the provenance below, never by its slot.

    Attributes:
        values: [L, H, N, D] value vectors as stored (any floating dtype, any device, any strides).
        steps: int64 [L, H, N], temporal step since the start of the stream, non-decreasing along N.
        rows: int64 [L, H, N], patch row i in the grid of the token's own step, after spatial
            merging. A (step, row, column) occurs at most once per layer and head.
        cols: int64 [L, H, N], patch column j, likewise.
        max_tokens: M, the cap on stored video tokens per layer and head.
        tokens_per_step: tokens of the newest step (the grid may change in mid-stream).
        key_source: (layer slice, "content" | "rotated") -> keys [l, H, N, D] of those layers, where
            "content" has the rotary position undone. Computed on demand: ask for few layers at a
            time and the temporary stays small.
        text: bool [L, H, N], the tokens that are text of their step (a timestamp, a frame's
            number) and not a patch; None where the model writes no text between steps. To a policy
            they are patches in a row apart, below the grid.
    """

    values: Tensor
    steps: Tensor
    rows: Tensor
    cols: Tensor
    max_tokens: int
    tokens_per_step: int
    key_source: Callable[[slice, str], Tensor]
    text: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (layers, KV heads, tokens per layer and head)."""
        n_layers, n_heads, n_tokens = self.steps.shape
        return n_layers, n_heads, n_tokens

    def keys(self, layers: slice, space: str) -> Tensor:
        """Return the keys [l, H, N, D] of a slice of layers, "content" (no RoPE) or "rotated".

        Raises:
            PolicyError: unknown key space.
        """
        if space not in KEY_SPACES:
            raise PolicyError(f"key space {space!r} is unknown: choose {' or '.join(KEY_SPACES)}")
        return self.key_source(layers, space)


class CompressionPolicy(ABC):
    """Choose which stored video tokens survive a compression.

    A subclass is a dataclass whose fields are its parameters, validated on construction. It
    overrides `choose`; everything else has a default. One instance serves one stream.

    A policy may keep state of its stream: kernels chosen once, a running mean of keys, a score
    given to each token at first sight. Between two calls of `select` for one stream the engine
    keeps exactly the slots returned, in the order returned, as slots 0 .. keep - 1, and appends
    what arrives behind them. State per token follows its token when `settle` gathers it with these
    slots; the slots beyond its length are the new ones. `reset` forgets all state.
    """

    name: ClassVar[str]

    def check(  # noqa: B027 (accepting is a sound default)
        self, *, max_tokens: int, target_tokens: int, tokens_per_step: int
    ) -> None:
        """Refuse sizes under which the policy cannot do what it promises; the default accepts all.

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
        tokens_per_step: int,  # noqa: ARG002 (for policies that count in steps)
    ) -> int | None:
        """Return how many tokens to keep before more are appended, or None when none must go.

        The default compresses when the block would pass the cap: to C tokens, or to fewer when a
        block larger than M - C needs the room, so that the cap holds at every moment.

        Args:
            stored: tokens per layer and head at present.
            incoming: tokens of the block that is about to be appended.
            max_tokens: M, cap per layer and head.
            target_tokens: C, what a compression leaves.
            tokens_per_step: tokens of one temporal step of the block.
        """
        if stored + incoming <= max_tokens:
            return None
        return max(0, min(target_tokens, max_tokens - incoming, stored))

    def select(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the slots that stay: int64 [L, H, keep], distinct and ascending in each head.

        They are those that the policy chooses, unless steps have text of their own: what is kept
        of a step then keeps its text, at the cost of the steps of which least was chosen.

        Raises:
            PolicyError: `keep` is negative or exceeds the number of stored tokens.
        """
        slots = self.choose(tokens, keep)
        if tokens.text is not None:
            slots = with_step_text(slots, tokens.steps, tokens.text)
        self.settle(slots)
        return slots

    @abstractmethod
    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Choose slots, as `select` returns them; the one method that a policy must have.

        Equal scores are decided for the lower slot, the older token, on every device, so that a
        run can be repeated exactly. A token whose score is not finite is the first to go.

        Raises:
            PolicyError: `keep` is negative or exceeds the number of stored tokens.
        """

    def settle(self, slots: Tensor) -> None:  # noqa: B027 (most policies have no state)
        """Let state per token follow the slots int64 [L, H, keep] that `select` will return."""

    def reset(self) -> None:  # noqa: B027 (most policies have no state)
        """Forget everything learnt from the current stream; the default has nothing to forget."""
