"""People who walk past the camera and hide a part of what it looks at."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

_CLOTHES = ((70, 78, 96), (112, 100, 90), (92, 92, 92), (168, 160, 150), (66, 84, 78))
_SKIN = ((214, 176, 150), (168, 124, 98), (110, 78, 62))
_WIDTHS = (18, 22, 26)
_SUPERSAMPLING = 2


class Person(NamedTuple):
    """Somebody in front of the camera: `x` is the middle in pixels, the others are choices."""

    x: int
    width: int
    clothes: int
    skin: int

    @classmethod
    def draw(cls, rng: np.random.Generator, edge: int) -> Person:
        """Draw somebody anywhere along an image of `edge` pixels."""
        return cls(
            int(rng.integers(-6, edge + 6)),
            _WIDTHS[int(rng.integers(len(_WIDTHS)))],
            int(rng.integers(len(_CLOTHES))),
            int(rng.integers(len(_SKIN))),
        )


def draw_person(image: NDArray[np.float32], person: Person) -> None:
    """Draw somebody into an image [n, n, 3]."""
    edge = image.shape[0]
    figure = _figure(person.width, person.clothes, person.skin, edge)
    left = person.x - person.width // 2
    start, stop = max(0, left), min(image.shape[1], left + person.width)
    if start >= stop:
        return
    part = figure[:, start - left : stop - left]
    window = image[:, start:stop]
    window *= 1.0 - part[..., 3:]
    window += part[..., :3] * part[..., 3:]


@lru_cache(maxsize=len(_WIDTHS) * len(_CLOTHES) * len(_SKIN))
def _figure(width: int, clothes: int, skin: int, edge: int) -> NDArray[np.float32]:
    """Draw a standing figure: float32 RGBA [edge, width, 4], alpha 0..1."""
    scale = _SUPERSAMPLING
    image = Image.new("RGBA", (width * scale, edge * scale), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    w, top = width * scale, round(0.12 * edge) * scale
    head = round(0.62 * w)
    pen.ellipse(((w - head) / 2, top, (w + head) / 2, top + head), fill=_SKIN[skin])
    pen.rounded_rectangle((0, top + head, w - 1, edge * scale + w), w // 3, fill=_CLOTHES[clothes])
    small = image.resize((width, edge), Image.Resampling.BOX)
    pixels = np.asarray(small, np.float32)
    pixels = np.concatenate([pixels[..., :3], pixels[..., 3:] / 255.0], -1)
    return pixels
