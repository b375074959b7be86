"""Rotary positions: undo a rotation, move a key to another position, re-index retained steps.

Rotary position embedding turns the pair ``(x[f], x[f + D/2])`` of a key by the angle
``position * inv_freq[f]``.  With multimodal RoPE every frequency belongs to one of the axes time,
row and column, and takes its position from there; ordinary RoPE has one axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RotarySpec:
    """How a model rotates its keys.

    Attributes:
        inv_freq: float32 ``[D / 2]``, radians per position, in the order of the head dimension.
        axis: int64 ``[D / 2]``, position axis of each frequency (0 time, 1 row, 2 column).
    """

    inv_freq: Tensor
    axis: Tensor

    @property
    def axes(self) -> int:
        """Number of position axes: 3 for multimodal RoPE, 1 for ordinary RoPE."""
        return int(self.axis.max()) + 1

    def unrotate(self, keys: Tensor, positions: Tensor) -> Tensor:
        """Return keys with their rotation undone.

        Args:
            keys: ``[..., N, D]``, rotated as the model stored them.
            positions: int ``[A, ..., N]``, position ids per axis.

        Returns:
            float32 ``[..., N, D]``; the input is not changed.
        """
        # The library multiplies position and frequency in float32; the same rounding here takes
        # back exactly the angle that was applied.
        angles = self._angles(positions)
        return _turn(keys, angles.cos(), -angles.sin())

    def move(self, keys: Tensor, old: Tensor, new: Tensor) -> Tensor:
        """Return keys rotated from one position to another.

        One rotation by the difference, so that a key stored in half precision is rounded once.

        Args:
            keys: ``[..., N, D]``, rotated for ``old``.
            old: int ``[A, ..., N]``, positions that the keys carry.
            new: int ``[A, ..., N]``, positions that they shall carry.

        Returns:
            Tensor of the keys' shape and dtype.
        """
        # Each angle is rounded to float32 as the library does, the difference is taken beyond
        # float32: a moved key then equals a key that the library would have rotated for `new`.
        angles = self._angles(new).double() - self._angles(old).double()
        return _turn(keys, angles.cos().float(), angles.sin().float()).to(keys.dtype)

    def _angles(self, positions: Tensor) -> Tensor:
        """Angles in radians, float32 ``[..., N, D / 2]``, for positions ``[A, ..., N]``."""
        if positions.shape[0] == 1:
            return positions[0].float().unsqueeze(-1) * self.inv_freq
        per_frequency = positions.float().movedim(0, -1).index_select(-1, self.axis)
        return per_frequency.mul_(self.inv_freq)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs ``(x[f], x[f + D/2])``: x ``[..., D]``, cos and sin ``[..., D / 2]``."""
    first, second = x.float().chunk(2, dim=-1)
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    half = first.shape[-1]
    torch.mul(first, cos, out=out[..., :half]).addcmul_(second, sin, value=-1.0)
    torch.mul(second, cos, out=out[..., half:]).addcmul_(first, sin)
    return out


def compact_steps(
    steps: Tensor, newest_step: int, *, origin: int, interval: int, limit: int
) -> tuple[Tensor, int]:
    """Re-index retained steps so that their temporal positions are contiguous again.

    Every layer and head keeps other tokens, hence other steps.  The newest step of the stream gets
    one position common to all of them (a block to come is rotated once for all heads), older steps
    count back from it by rank within their head.

    Args:
        steps: int ``[L, H, N]``, step index of each token, non-decreasing along N.
        newest_step: index of the newest step of the stream, in memory or not.
        origin: smallest temporal position that may be given.
        interval: distance of two successive steps on the temporal axis.
        limit: first temporal position that must not be given to the newest step.

    Returns:
        int64 ``[L, H, N]`` of new temporal positions, and the position of the newest step.  Where
        a head holds more steps than fit below ``limit``, ranks are squeezed evenly: order is kept,
        neighbours may share a position.
    """
    fresh = torch.zeros_like(steps, dtype=torch.int64)
    fresh[..., 1:] = steps[..., 1:] != steps[..., :-1]
    rank = fresh.cumsum(-1)
    newer = rank[..., -1:] - rank + (steps[..., -1:] != newest_step).long()
    longest = int(newer.max())
    room = max(0, limit - 1 - origin)
    if longest * interval <= room:
        newest = origin + longest * interval
        return newest - newer * interval, newest
    newest = origin + room
    return newest - newer * room // longest, newest
