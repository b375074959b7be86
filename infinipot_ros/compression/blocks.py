"""Cut work into pieces whose temporaries are of bounded size."""

from __future__ import annotations

from collections.abc import Iterator


def cut(n_items: int, item_size: int, limit: int) -> Iterator[slice]:
    """Cut `n_items` items of `item_size` elements into slices of `limit` elements, or of one item.

    Every slice but the last has the same length.
    """
    length = max(1, limit // max(1, item_size))
    for start in range(0, n_items, length):
        yield slice(start, min(start + length, n_items))
