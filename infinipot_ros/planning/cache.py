"""Bytes of a SlabCache, by the formula of its planes."""

from __future__ import annotations

from dataclasses import dataclass

from infinipot_ros.planning.figures import TextFigures

_PROVENANCE = 2 * 2 + 4 + 8  # row, column (int16), step (int32), stamp (int64) of a slot
_POSITION = 4  # int32 on each axis
_SCORE = 4  # what the default policy remembers of a slot, float32


@dataclass(frozen=True)
class CacheBytes:
    """Bytes that a cache takes.

    Attributes:
        token: keys and values of one token.
        provenance: provenance of one video token.
    """

    token: int
    provenance: int

    @classmethod
    def of(cls, text: TextFigures, itemsize: int) -> CacheBytes:
        """Return them for a decoder whose keys and values have so many bytes a number."""
        slots = text.layers * text.kv_heads
        return cls(
            token=2 * slots * text.head_dim * itemsize,
            provenance=slots * (_PROVENANCE + _POSITION * text.axes),
        )

    def allocated(self, *, cap: int, prefix: int, reserve: int) -> int:
        """Return the bytes of a cache's planes.

        Args:
            cap: M, video tokens.
            prefix: tokens of the system prompt.
            reserve: tokens for a question and its answer.
        """
        return (prefix + cap + reserve) * self.token + cap * self.provenance


def policy_state(text: TextFigures, cap: int) -> int:
    """Return the bytes that the default policy remembers between compressions."""
    return _SCORE * text.layers * text.kv_heads * cap


def rotation_tables(text: TextFigures, positions: int) -> int:
    """Return the bytes of the cosines and sines kept for positions up to a limit, one a model."""
    most = max(1024, 2 * min(positions, 65_536))
    return most * text.head_dim * 4
