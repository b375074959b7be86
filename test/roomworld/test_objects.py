"""The drawings: complete, coloured as named, and different from one another."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from infinipot_ros.roomworld.objects import SIZES, sprite
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS

GREY_WALL = 150.0


def on_grey(kind: str, color: str, size: int) -> np.ndarray:
    drawn = sprite(kind, color, size)
    return drawn.premultiplied + GREY_WALL * drawn.transparency


def test_there_are_enough_kinds_and_colors() -> None:
    assert len(set(KINDS)) == len(KINDS) >= 12
    assert len(COLORS) >= 6


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sprite_is_a_partly_covered_square(kind: str, size: int) -> None:
    drawn = sprite(kind, "red", size)
    assert drawn.premultiplied.shape == (size, size, 3)
    assert drawn.transparency.shape == (size, size, 1)
    assert drawn.transparency.min() == 0.0
    assert 0.1 < 1.0 - drawn.transparency.mean() < 0.95
    # Nothing shines where nothing is drawn.
    clear = drawn.transparency[..., 0] == 1.0
    assert clear.any()
    assert (drawn.premultiplied[clear] == 0.0).all()


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_named_color_covers_more_than_any_other(kind: str, color: str) -> None:
    drawn = sprite(kind, color, max(SIZES))
    solid = drawn.premultiplied[drawn.transparency[..., 0] == 0.0]
    distances = {name: np.abs(solid - np.array(rgb)).max(-1) for name, rgb in COLORS.items()}
    shares = {name: (distance < 8).mean() for name, distance in distances.items()}
    assert max(shares, key=shares.__getitem__) == color


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("color", COLORS)
def test_two_kinds_never_look_alike(color: str, size: int) -> None:
    for one, other in combinations(KINDS, 2):
        difference = np.abs(on_grey(one, color, size) - on_grey(other, color, size)).max(-1)
        assert (difference > 40).mean() > 0.1, (one, other)


def test_what_is_not_in_the_vocabulary_is_refused() -> None:
    with pytest.raises(KeyError):
        sprite("ball", "mauve", 28)
    with pytest.raises(KeyError):
        sprite("dragon", "red", 28)
