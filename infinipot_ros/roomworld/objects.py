"""Draw the household objects of RoomWorld.

Every kind is one function that draws in unit coordinates ((0, 0) top left, (1, 1) bottom right) at
four times the final size; the area average down to the final size gives the soft edges of a lens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from infinipot_ros.roomworld.vocabulary import COLORS, KINDS

SIZES: tuple[int, ...] = (26, 30, 35, 39)
"""Edge lengths of the square sprites, in pixels; the smallest stands for what is far away."""

_SUPERSAMPLING = 4
_WHITE = (250, 250, 250)
_GREY = (120, 120, 120)
_INK = (20, 20, 20)
_LEAF = (70, 130, 70)

Rgb = tuple[int, int, int]


class Sprite(NamedTuple):
    """One drawn object: colour already multiplied by coverage, and what shines through."""

    premultiplied: NDArray[np.float32]
    """[size, size, 3], 0..255, RGB times coverage."""
    transparency: NDArray[np.float32]
    """[size, size, 1], 0 (object) .. 1 (background)."""


class _Pen:
    """Draw filled shapes in unit coordinates on a transparent square."""

    def __init__(self, edge: int) -> None:
        self._edge = edge
        self.image = Image.new("RGBA", (edge, edge), (0, 0, 0, 0))
        self._draw = ImageDraw.Draw(self.image)

    def _scaled(self, points: tuple[float, ...]) -> list[float]:
        return [value * self._edge for value in points]

    def _width(self, width: float) -> int:
        return max(1, int(width * self._edge))

    def ellipse(self, *box: float, fill: Rgb) -> None:
        self._draw.ellipse(self._scaled(box), fill=fill)

    def ring(self, *box: float, color: Rgb, width: float) -> None:
        self._draw.ellipse(self._scaled(box), outline=color, width=self._width(width))

    def arc(self, *box: float, start: float, end: float, color: Rgb, width: float) -> None:
        self._draw.arc(self._scaled(box), start, end, fill=color, width=self._width(width))

    def rectangle(self, *box: float, fill: Rgb, radius: float = 0.0) -> None:
        self._draw.rounded_rectangle(self._scaled(box), radius=radius * self._edge, fill=fill)

    def polygon(self, *points: float, fill: Rgb) -> None:
        self._draw.polygon(self._scaled(points), fill=fill)

    def line(self, *points: float, color: Rgb, width: float) -> None:
        self._draw.line(self._scaled(points), fill=color, width=self._width(width))


def _ball(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.ellipse(0.05, 0.05, 0.95, 0.95, fill=color)
    pen.arc(0.2, -0.2, 1.2, 0.8, start=60, end=200, color=edge, width=0.05)
    pen.arc(-0.2, 0.3, 0.8, 1.3, start=250, end=380, color=edge, width=0.05)


def _cup(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.ring(0.55, 0.3, 0.98, 0.75, color=color, width=0.1)
    pen.polygon(0.08, 0.15, 0.75, 0.15, 0.66, 0.92, 0.17, 0.92, fill=color)
    pen.ellipse(0.08, 0.08, 0.75, 0.24, fill=edge)


def _box(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.rectangle(0.05, 0.15, 0.95, 0.95, fill=color)
    pen.rectangle(0.42, 0.15, 0.58, 0.95, fill=_WHITE)
    pen.line(0.05, 0.38, 0.95, 0.38, color=edge, width=0.055)


def _bottle(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.rectangle(0.41, 0.02, 0.59, 0.35, fill=color)
    pen.rectangle(0.28, 0.3, 0.72, 0.98, fill=color, radius=0.1)
    pen.rectangle(0.28, 0.55, 0.72, 0.75, fill=_WHITE)
    pen.rectangle(0.39, 0.0, 0.61, 0.08, fill=edge)


def _chair(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.rectangle(0.12, 0.02, 0.28, 0.98, fill=color)
    pen.rectangle(0.12, 0.5, 0.9, 0.64, fill=color)
    pen.rectangle(0.76, 0.6, 0.9, 0.98, fill=color)
    pen.line(0.28, 0.57, 0.76, 0.57, color=edge, width=0.03)


def _plant(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    for degrees in (-65, -35, 0, 35, 65):
        tip_x = 0.5 + 0.42 * math.sin(math.radians(degrees))
        tip_y = 0.58 - 0.52 * math.cos(math.radians(degrees))
        pen.line(0.5, 0.62, tip_x, tip_y, color=_LEAF, width=0.11)
    pen.polygon(0.25, 0.6, 0.75, 0.6, 0.66, 0.98, 0.34, 0.98, fill=color)
    pen.line(0.25, 0.63, 0.75, 0.63, color=edge, width=0.04)


def _lamp(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.rectangle(0.46, 0.4, 0.54, 0.95, fill=_GREY)
    pen.rectangle(0.28, 0.9, 0.72, 0.98, fill=_GREY)
    pen.polygon(0.32, 0.03, 0.68, 0.03, 0.95, 0.5, 0.05, 0.5, fill=color)
    pen.line(0.05, 0.49, 0.95, 0.49, color=edge, width=0.03)


def _book(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.polygon(0.02, 0.3, 0.5, 0.4, 0.5, 0.92, 0.02, 0.8, fill=color)
    pen.polygon(0.98, 0.3, 0.5, 0.4, 0.5, 0.92, 0.98, 0.8, fill=color)
    for y in (0.45, 0.57, 0.69):
        pen.line(0.1, y, 0.42, y + 0.08, color=_WHITE, width=0.045)
        pen.line(0.9, y, 0.58, y + 0.08, color=_WHITE, width=0.045)
    pen.line(0.5, 0.4, 0.5, 0.92, color=edge, width=0.03)


def _key(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.ring(0.02, 0.28, 0.46, 0.72, color=color, width=0.125)
    pen.rectangle(0.42, 0.44, 0.98, 0.57, fill=color)
    pen.rectangle(0.86, 0.5, 0.97, 0.8, fill=color)
    pen.rectangle(0.66, 0.5, 0.76, 0.74, fill=color)
    pen.line(0.44, 0.5, 0.9, 0.5, color=edge, width=0.02)


def _cone(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.polygon(0.5, 0.02, 0.82, 0.86, 0.18, 0.86, fill=color)
    pen.rectangle(0.04, 0.84, 0.96, 0.97, fill=color)
    pen.polygon(0.405, 0.35, 0.595, 0.35, 0.66, 0.55, 0.34, 0.55, fill=_WHITE)
    pen.line(0.04, 0.85, 0.96, 0.85, color=edge, width=0.02)


def _clock(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.ellipse(0.03, 0.03, 0.97, 0.97, fill=color)
    pen.ellipse(0.18, 0.18, 0.82, 0.82, fill=_WHITE)
    pen.line(0.5, 0.5, 0.5, 0.24, color=_INK, width=0.06)
    pen.line(0.5, 0.5, 0.7, 0.58, color=_INK, width=0.06)
    pen.arc(0.03, 0.03, 0.97, 0.97, start=0, end=360, color=edge, width=0.02)


def _hat(pen: _Pen, color: Rgb, edge: Rgb) -> None:
    pen.ellipse(0.0, 0.68, 1.0, 0.92, fill=color)
    pen.rectangle(0.24, 0.15, 0.76, 0.82, fill=color, radius=0.12)
    pen.rectangle(0.24, 0.6, 0.76, 0.7, fill=edge)


_DRAW: dict[str, Callable[[_Pen, Rgb, Rgb], None]] = {
    "ball": _ball, "cup": _cup, "box": _box, "bottle": _bottle, "chair": _chair, "plant": _plant,
    "lamp": _lamp, "book": _book, "key": _key, "cone": _cone, "clock": _clock, "hat": _hat,
}  # fmt: skip


@lru_cache(maxsize=len(KINDS) * len(COLORS) * len(SIZES))
def sprite(kind: str, color: str, size: int) -> Sprite:
    """Return the drawing of one object, `size` x `size` pixels.

    Raises KeyError for a kind or colour that the vocabulary does not list.
    """
    body = COLORS[color]
    edge = (60, 60, 60) if sum(body) > 120 else (200, 200, 200)
    pen = _Pen(size * _SUPERSAMPLING)
    _DRAW[kind](pen, body, edge)
    # Average colour times coverage, not colour alone: transparent black must not darken the edges.
    rgba = np.asarray(pen.image, dtype=np.float32)
    coverage = rgba[..., 3:] / 255.0
    layers = np.concatenate([rgba[..., :3] * coverage, coverage], axis=-1)
    cells = layers.reshape(size, _SUPERSAMPLING, size, _SUPERSAMPLING, 4).mean(axis=(1, 3))
    return Sprite(cells[..., :3].astype(np.float32), (1.0 - cells[..., 3:]).astype(np.float32))
