"""A stand-in for the cache: random tokens with provenance, appended by step, retained by slot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from infinipot_ros.compression import VideoTokens


class Store:
    """Hold what the engine's cache would, with random keys and values per step."""

    def __init__(self, *, layers: int, heads: int, dim: int = 8, seed: int = 0) -> None:
        self.layers, self.heads, self.dim = layers, heads, dim
        self.rng = torch.Generator().manual_seed(seed)
        self.n_steps = 0
        self.tokens_per_step = 1
        self.content = torch.empty(layers, heads, 0, dim)
        self.rotated = torch.empty(layers, heads, 0, dim)
        self.values = torch.empty(layers, heads, 0, dim)
        self.steps, self.rows, self.cols = (
            torch.empty(layers, heads, 0, dtype=torch.int64) for _ in range(3)
        )
        # Layers and heads of different scale and spread, as in real models.
        self.scale = torch.rand(layers, heads, 1, 1, generator=self.rng) * 4 + 0.5
        self.spread = torch.rand(layers, heads, 1, 1, generator=self.rng) + 0.05

    @property
    def n_tokens(self) -> int:
        return self.steps.shape[-1]

    def append(self, rows: int, cols: int, count: int = 1) -> None:
        """Append `count` whole steps of a rows x cols grid."""
        for _ in range(count):
            n = rows * cols
            shape = (self.layers, self.heads, n, self.dim)
            content, rotated, values = (torch.randn(shape, generator=self.rng) for _ in range(3))
            values = self.scale * (1 + self.spread * values)
            place = torch.arange(n).expand(self.layers, self.heads, n)
            self._extend(content, rotated, values, place // cols, place % cols)
            self.tokens_per_step = n
            self.n_steps += 1

    def _extend(
        self, content: Tensor, rotated: Tensor, values: Tensor, rows: Tensor, cols: Tensor
    ) -> None:
        self.content = torch.cat([self.content, content], 2)
        self.rotated = torch.cat([self.rotated, rotated], 2)
        self.values = torch.cat([self.values, values], 2)
        self.steps = torch.cat([self.steps, torch.full_like(rows, self.n_steps)], 2)
        self.rows = torch.cat([self.rows, rows], 2)
        self.cols = torch.cat([self.cols, cols], 2)

    def retain(self, slots: Tensor) -> None:
        """Keep only the given slots, in the given order."""
        for name in ("content", "rotated", "values"):
            setattr(self, name, torch.take_along_dim(getattr(self, name), slots[..., None], 2))
        for name in ("steps", "rows", "cols"):
            setattr(self, name, getattr(self, name).gather(2, slots))

    def view(self, max_tokens: int | None = None) -> VideoTokens:
        """Show the store as a policy sees it."""
        spaces = {"content": self.content, "rotated": self.rotated}
        return VideoTokens(
            values=self.values,
            steps=self.steps,
            rows=self.rows,
            cols=self.cols,
            max_tokens=self.n_tokens if max_tokens is None else max_tokens,
            tokens_per_step=self.tokens_per_step,
            key_source=lambda layers, space: spaces[space][layers],
        )


@pytest.fixture(scope="session")
def make_store() -> Callable[..., Store]:
    return Store
