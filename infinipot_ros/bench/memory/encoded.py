"""Encode the frames of a stream once and let any number of engines observe them.

The engine's verbs stay the way in. What is observed are tickets, images of one pixel that hold the
number of a frame; a copy of the adapter, sharing all weights, looks up the embeddings of the frames
that they stand for. The vision encoder sees each step for itself, so the embeddings are those that
the engine would have got block by block.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infinipot_ros.core.adapter import EncodedBlock, FramePreprocessor, ModelAdapter

_STEPS_AT_ONCE = 16

Ticket = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class EncodedStream:
    """Frames after the vision encoder.

    Attributes:
        embeddings: [steps, rows * cols, hidden].
        rows: patch rows of a step (after spatial merge).
        cols: patch columns of a step.
        frames_per_step: frames of a step.
    """

    embeddings: Tensor
    rows: int
    cols: int
    frames_per_step: int

    @property
    def tokens_per_step(self) -> int:
        """Return the video tokens of a step."""
        return self.rows * self.cols

    def tickets(self, first_step: int, last_step: int) -> list[Ticket]:
        """Return what to observe for steps [first_step, last_step), uint8 [1, 1, 3] a frame."""
        frames = range(first_step * self.frames_per_step, last_step * self.frames_per_step)
        return [ticket(frame) for frame in frames]


def ticket(frame: int) -> Ticket:
    """Return an image of one pixel, uint8 [1, 1, 3], that holds a number below 2**24."""
    return np.array([[[frame >> 16, (frame >> 8) & 255, frame & 255]]], dtype=np.uint8)


def encode_stream(adapter: ModelAdapter, images: Iterable[NDArray[np.uint8]]) -> EncodedStream:
    """Run preprocessing and vision encoder over the frames of a stream, whole steps of them.

    Raises:
        ValueError: there is no frame, the last step is not full, or the patch grid changes.
    """
    preprocess = adapter.preprocessor(0, 0)
    parts: list[Tensor] = []
    grids: set[tuple[int, int]] = set()
    for batch in _batches(images, _STEPS_AT_ONCE * adapter.frames_per_step):
        if len(batch) % adapter.frames_per_step:
            raise ValueError(
                f"the last step has {len(batch) % adapter.frames_per_step} frames; "
                f"give whole steps of {adapter.frames_per_step}"
            )
        pixels, grid = preprocess(batch)
        with torch.inference_mode():
            block = adapter.encode(adapter.to_device(pixels), grid)
        grids.add((block.rows, block.cols))
        parts.append(block.embeddings.view(block.steps, block.rows * block.cols, -1))
    if len(grids) != 1:
        raise ValueError(f"a stream has one patch grid, this one {sorted(grids) or 'no frame'}")
    ((rows, cols),) = grids
    return EncodedStream(torch.cat(parts), rows, cols, adapter.frames_per_step)


def reading_tickets(adapter: ModelAdapter, stream: EncodedStream) -> ModelAdapter:
    """Return a copy of the adapter, weights shared, that takes tickets of `stream` as frames."""
    reader = copy.copy(adapter)
    tickets = _TicketPreprocessor(stream)

    def encode(pixels: Tensor, grid: tuple[int, int, int]) -> EncodedBlock:
        embeddings = stream.embeddings[pixels.long()].flatten(0, 1)
        return EncodedBlock(embeddings, *grid)

    reader.preprocessor = lambda *_: tickets  # type: ignore[method-assign]
    reader.encode = encode  # type: ignore[method-assign]
    return reader


class _TicketPreprocessor(FramePreprocessor):
    """Turn tickets into the numbers of their steps."""

    def __init__(self, stream: EncodedStream) -> None:
        self._stream = stream

    def max_tokens_per_step(self) -> int:
        return self._stream.tokens_per_step

    def __call__(
        self, frames: Sequence[NDArray[np.uint8]]
    ) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
        """Return step numbers, float32 [n], and the grid (n, rows, cols)."""
        stream = self._stream
        numbers = np.array([frame[0, 0] for frame in frames], dtype=np.int64) @ (65536, 256, 1)
        numbers = numbers.reshape(-1, stream.frames_per_step)
        steps = numbers[:, 0] // stream.frames_per_step
        whole = steps[:, None] * stream.frames_per_step + np.arange(stream.frames_per_step)
        if not np.array_equal(numbers, whole):
            raise ValueError(f"tickets {numbers.ravel().tolist()} are not whole steps")
        return steps.astype(np.float32), (len(steps), stream.rows, stream.cols)


def _batches(images: Iterable[NDArray[np.uint8]], size: int) -> Iterator[list[NDArray[np.uint8]]]:
    source = iter(images)
    while batch := list(islice(source, size)):
        yield batch
