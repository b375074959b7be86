"""SlabCache: keys and values in one preallocated slab, with the provenance of every video token.

Layout along the slot axis: ``[ prefix | video tokens (at most M) | query reserve ]``.  Slots up to
``length`` are committed; a forward pass writes behind them and becomes real by ``commit_*``, so a
pass that fails half-way leaves nothing behind.  ``mark`` and ``rewind`` undo a question.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from infinipot_ros.core.positions import RotarySpec

_PROVENANCE_SLOT = 2 * 2 + 4 + 8  # row, column (int16), step (int32), stamp (int64)
_POSITION = 4  # int32 per axis


@dataclass(frozen=True)
class CacheShape:
    """Sizes of a cache.

    Attributes:
        layers: decoder layers L.
        kv_heads: KV heads per layer H.
        head_dim: channels per head D.
        axes: position axes A (3 for multimodal RoPE, 1 otherwise).
        dtype: dtype of keys and values.
        device: device of everything.
    """

    layers: int
    kv_heads: int
    head_dim: int
    axes: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers and heads."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def provenance_bytes_per_token(self) -> int:
        """Bytes of provenance of one video token over all layers and heads."""
        return self.layers * self.kv_heads * (_PROVENANCE_SLOT + _POSITION * self.axes)


@dataclass(frozen=True, eq=False)
class Provenance:
    """Origin of the tokens of one block, the same for every layer and head on arrival.

    Attributes:
        steps: int ``[n]``, index of the temporal step since the start of the stream.
        rows: int ``[n]``, patch row i in the step's grid; -1 for text of the step.
        cols: int ``[n]``, patch column j in the step's grid; the number of the token for text.
        stamps: int64 ``[n]``, capture stamp of the step, nanoseconds.
        positions: int ``[A, n]``, position ids.
    """

    steps: Tensor
    rows: Tensor
    cols: Tensor
    stamps: Tensor
    positions: Tensor


class SlabCache:
    """Keys and values of one stream.

    Args:
        shape: sizes, dtype and device.
        prefix_tokens: slots of the system prompt, never evicted.
        max_tokens: M, slots for video tokens; None makes a cache that grows (policy ``full``).
        reserve_tokens: slots for one question and its answer.
    """

    def __init__(
        self, shape: CacheShape, *, prefix_tokens: int, max_tokens: int | None, reserve_tokens: int
    ) -> None:
        self.shape = shape
        self.prefix_tokens = prefix_tokens
        self.max_tokens = max_tokens
        self.reserve_tokens = reserve_tokens
        self.length = 0
        self.video_tokens = 0  # committed video tokens per layer and head
        self._video_slots = 0
        # 256 slots to start with: a growing cache doubles, so the number hardly matters.
        self._allocate(max_tokens if max_tokens is not None else 256)

    # -- sizes -----------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Slots per layer and head."""
        return self.keys.shape[2]

    @property
    def bytes_allocated(self) -> int:
        """Bytes of all tensors that the cache owns; constant where the cache has a cap."""
        return sum(t.numel() * t.element_size() for t, _ in self._planes())

    @property
    def bytes_used(self) -> int:
        """Bytes of the slots that hold the prefix or a video token, with provenance."""
        return (
            self.prefix_tokens + self.video_tokens
        ) * self.shape.bytes_per_token + self.video_tokens * self.shape.provenance_bytes_per_token

    # -- provenance of the stored video tokens ---------------------------------------------

    @property
    def steps(self) -> Tensor:
        """int32 ``[L, H, N]``, step index of each video token."""
        return self._steps[:, :, : self.video_tokens]

    @property
    def rows(self) -> Tensor:
        """int16 ``[L, H, N]``, patch row of each video token; -1 where it is text of its step."""
        return self._rows[:, :, : self.video_tokens]

    @property
    def cols(self) -> Tensor:
        """int16 ``[L, H, N]``, patch column of each video token."""
        return self._cols[:, :, : self.video_tokens]

    @property
    def stamps(self) -> Tensor:
        """int64 ``[L, H, N]``, capture stamp of each video token, nanoseconds."""
        return self._stamps[:, :, : self.video_tokens]

    @property
    def positions(self) -> Tensor:
        """int32 ``[A, L, H, N]``, position ids that the stored keys are rotated for."""
        return self._positions[:, :, :, : self.video_tokens]

    @property
    def video_keys(self) -> Tensor:
        """``[L, H, N, D]``, keys of the video tokens as stored (rotated)."""
        return self.keys[:, :, self.prefix_tokens : self.prefix_tokens + self.video_tokens]

    @property
    def video_values(self) -> Tensor:
        """``[L, H, N, D]``, values of the video tokens."""
        return self.values[:, :, self.prefix_tokens : self.prefix_tokens + self.video_tokens]

    # -- writing ---------------------------------------------------------------------------

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values behind the committed slots.

        Args:
            layer: index of the decoder layer.
            keys: ``[H, n, D]``, rotated.
            values: ``[H, n, D]``.

        Returns:
            Views ``[H, length + n, D]`` of the layer's keys and values, the new ones included.

        Raises:
            OverflowError: the tokens do not fit; the caller broke the cap or the reserve.
        """
        start, stop = self.length, self.length + keys.shape[1]
        if stop > self.capacity:
            raise OverflowError(
                f"{keys.shape[1]} tokens do not fit behind {start} in {self.capacity} slots"
            )
        self.keys[layer, :, start:stop] = keys
        self.values[layer, :, start:stop] = values
        return self.keys[layer, :, :stop], self.values[layer, :, :stop]

    def ensure(self, n_tokens: int) -> None:
        """Make room for n more video tokens beside the query reserve.

        Raises:
            OverflowError: the cache has a cap and the tokens would pass it.
        """
        need = self.video_tokens + n_tokens
        if need <= self._video_slots:
            return
        if self.max_tokens is not None:
            raise OverflowError(f"{need} video tokens would pass the cap of {self.max_tokens}")
        self._allocate(max(need, 2 * self._video_slots), keep=True)

    def commit_text(self, n_tokens: int) -> None:
        """Make n written text tokens part of the cache (prefix, question or answer)."""
        self.length += n_tokens

    def commit_video(self, origin: Provenance) -> None:
        """Make the written video tokens part of the memory.

        Args:
            origin: provenance of the tokens, in the order in which they were written.
        """
        start = self.video_tokens
        stop = start + origin.steps.shape[0]
        self._steps[:, :, start:stop] = origin.steps
        self._rows[:, :, start:stop] = origin.rows
        self._cols[:, :, start:stop] = origin.cols
        self._stamps[:, :, start:stop] = origin.stamps
        self._positions[:, :, :, start:stop] = origin.positions[:, None, None]
        self.video_tokens = stop
        self.length = self.prefix_tokens + stop

    def mark(self) -> int:
        """Return a mark that ``rewind`` brings the cache back to."""
        return self.length

    def rewind(self, mark: int) -> None:
        """Forget everything that was committed since the mark."""
        self.length = mark

    def clear(self) -> None:
        """Forget every video token; the prefix, and the memory itself, stay."""
        self.length = min(self.length, self.prefix_tokens)
        self.video_tokens = 0

    # -- compression -----------------------------------------------------------------------

    def retain(self, slots: Tensor) -> None:
        """Keep the given video tokens and move them together, in place.

        Args:
            slots: int64 ``[L, H, C]``, ascending along C, counted from the first video token.
        """
        kept = slots.shape[2]
        first, stop = self.prefix_tokens, self.prefix_tokens + kept
        heads, dim = self.shape.kv_heads, self.shape.head_dim
        # All that must be allocated is allocated before the first slot changes: running out of
        # memory then leaves the cache whole.  One layer's scratch serves all layers; a flat
        # index_select is two to three times faster than gather over [H, N, D].
        offsets = torch.arange(heads, device=slots.device).unsqueeze(-1) * self.capacity + first
        flat = (slots + offsets).flatten(1)
        scratch = self.keys.new_empty(heads * kept, dim)
        planes = [self._steps, self._rows, self._cols, self._stamps, *self._positions]
        moved = [plane.gather(2, slots) for plane in planes]
        for layer in range(self.shape.layers):
            for slab in (self.keys[layer], self.values[layer]):
                torch.index_select(slab.view(-1, dim), 0, flat[layer], out=scratch)
                slab[:, first:stop] = scratch.view(heads, kept, dim)
        for plane, values in zip(planes, moved, strict=True):
            plane[:, :, :kept] = values
        self.video_tokens = kept
        self.length = stop

    def unrotated_keys(self, layers: slice, rotary: RotarySpec) -> Tensor:
        """Return keys of the video tokens without RoPE, float32 ``[l, H, N, D]``."""
        return rotary.unrotate(self.video_keys[layers], self.positions[:, layers])

    def move(self, rotary: RotarySpec, positions: Tensor) -> None:
        """Give the video tokens new positions and rotate their keys to match.

        Args:
            rotary: how the model rotates its keys.
            positions: int ``[A, L, H, N]``, positions that the keys shall carry.
        """
        for layer in range(self.shape.layers):
            old, new = self.positions[:, layer], positions[:, layer].to(torch.int32)
            keys = self.video_keys[layer]
            keys.copy_(rotary.move(keys, old, new))
            old.copy_(new)

    # -- allocation ------------------------------------------------------------------------

    def _allocate(self, video_slots: int, *, keep: bool = False) -> None:
        """Allocate the planes for so many video slots, with what the old ones hold if wanted.

        They change hands at the end: running out of memory in between leaves the cache as it was.
        """
        shape = self.shape
        slots = self.prefix_tokens + video_slots + self.reserve_tokens
        heads = (shape.layers, shape.kv_heads)
        sizes: tuple[tuple[tuple[int, ...], torch.dtype], ...] = (
            ((*heads, slots, shape.head_dim), shape.dtype),
            ((*heads, slots, shape.head_dim), shape.dtype),
            ((*heads, video_slots), torch.int32),
            ((*heads, video_slots), torch.int16),
            ((*heads, video_slots), torch.int16),
            ((*heads, video_slots), torch.int64),
            ((shape.axes, *heads, video_slots), torch.int32),
        )
        # Zeros, not empty: pages are touched now, so that a machine too small says so at the
        # start and not after an hour of stream.  Never inference tensors, even where a growing
        # cache allocates inside a forward pass: those could not be written to outside of it.
        with torch.inference_mode(False):
            fresh = [torch.zeros(s, dtype=dtype, device=shape.device) for s, dtype in sizes]
        if keep:
            for (source, axis), target in zip(self._planes(), fresh, strict=True):
                target.narrow(axis, 0, source.shape[axis]).copy_(source)
        self.keys, self.values, self._steps, self._rows, self._cols = fresh[:5]
        self._stamps, self._positions = fresh[5:]
        self._video_slots = video_slots

    def _planes(self) -> tuple[tuple[Tensor, int], ...]:
        """Every tensor of the cache with the axis that counts its slots."""
        return (
            (self.keys, 2),
            (self.values, 2),
            (self._steps, 2),
            (self._rows, 2),
            (self._cols, 2),
            (self._stamps, 2),
            (self._positions, 3),
        )
