"""Rotary positions: undo a rotation, move a key to another position, re-index retained steps.

Rotary position embedding turns the pair ``(x[f], x[f + D/2])`` of a key by the angle
``position * inv_freq[f]``.  With multimodal RoPE every frequency belongs to one of the axes time,
row and column, and takes its position from there; ordinary RoPE has one axis.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

_TABLE_POSITIONS = 65_536  # beyond, cosines are computed: a table must not grow with the stream


class RotarySpec:
    """How a model rotates its keys.

    Args:
        inv_freq: float32 ``[D / 2]``, radians per position, in the order of the head dimension.
        axis: int64 ``[D / 2]``, position axis of each frequency (0 time, 1 row, 2 column).
    """

    def __init__(self, inv_freq: Tensor, axis: Tensor) -> None:
        self.inv_freq = inv_freq
        self.axis = axis
        self.axes = int(axis.max()) + 1
        self._columns = [_columns(axis, number) for number in range(self.axes)]
        self._table = inv_freq.new_empty(0, 2, len(inv_freq))

    def unrotate(self, keys: Tensor, positions: Tensor) -> Tensor:
        """Return keys with their rotation undone.

        Args:
            keys: ``[..., N, D]``, rotated as the model stored them.
            positions: int ``[A, ..., N]``, position ids per axis, none below 0.

        Returns:
            float32 ``[..., N, D]``; the input is not changed.
        """
        cos, sin = self._cos_sin(positions)
        out = keys.to(torch.float32, copy=True)
        first, second = out.chunk(2, dim=-1)
        turned = torch.mul(first, cos).addcmul_(second, sin)
        second.mul_(cos).addcmul_(first, sin, value=-1.0)
        first.copy_(turned)
        return out

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
        cos, sin = angles.cos().float(), angles.sin().float()
        first, second = keys.float().chunk(2, dim=-1)
        moved = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
        return moved.to(keys.dtype)

    def _angles(self, positions: Tensor) -> Tensor:
        """Angles in radians, float32 ``[..., N, D / 2]``, for positions ``[A, ..., N]``."""
        per_frequency = positions.float().movedim(0, -1).index_select(-1, self.axis)
        # The library multiplies position and frequency in float32; the same rounding here takes
        # back exactly the angle that was applied.
        return per_frequency.mul_(self.inv_freq)

    def _cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine ``[..., N, D / 2]`` of the angles at positions int ``[A, ..., N]``."""
        last = int(positions.max()) if positions.numel() else 0
        if last >= _TABLE_POSITIONS:
            angles = self._angles(positions)
            return angles.cos(), angles.sin()
        table = self._table_up_to(last)
        shape = positions.shape[1:]
        cos = self.inv_freq.new_empty(*shape, len(self.inv_freq))
        sin = torch.empty_like(cos)
        for ids, columns in zip(positions, self._columns, strict=True):
            rows = table[:, :, columns].flatten(1).index_select(0, ids.flatten())
            cos[..., columns], sin[..., columns] = rows.view(*shape, 2, -1).unbind(-2)
        return cos, sin

    def _table_up_to(self, position: int) -> Tensor:
        """Cosines and sines ``[positions, 2, D / 2]``; looking up is faster than computing."""
        if position >= len(self._table):
            size = max(1024, 2 * position)
            angles = torch.arange(size, device=self.inv_freq.device).float()
            angles = angles.unsqueeze(-1) * self.inv_freq
            self._table = torch.stack((angles.cos(), angles.sin()), 1)
        return self._table[: position + 1]


def _columns(axis: Tensor, number: int) -> slice | Tensor:
    """Return where in the head dimension an axis has its frequencies: a slice where one can say."""
    found = torch.nonzero(axis == number).flatten()
    places = found.tolist()
    steps = {after - before for before, after in pairwise(places)}
    if len(steps) > 1:
        return found
    return slice(places[0], places[-1] + 1, steps.pop() if steps else 1)


def step_ranks(steps: Tensor) -> Tensor:
    """Number the steps of each head, the oldest 0: int ``[..., N]``, non-decreasing, to int64."""
    fresh = torch.zeros_like(steps, dtype=torch.int64)
    fresh[..., 1:] = steps[..., 1:] != steps[..., :-1]
    return fresh.cumsum(-1)


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
    rank = step_ranks(steps)
    newer = rank[..., -1:] - rank + (steps[..., -1:] != newest_step).long()
    longest = int(newer.max())
    room = max(0, limit - 1 - origin)
    if longest * interval <= room:
        newest = origin + longest * interval
        return newest - newer * interval, newest
    newest = origin + room
    return newest - newer * room // longest, newest
