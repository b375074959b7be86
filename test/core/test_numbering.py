"""Numbering: three ways to count an endless stream, and to count it anew."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infinipot_ros.core.numbering import (
    BlockLayout,
    Cursor,
    StepGrids,
    Stored,
    TokenByToken,
    VideoGrid,
)

START = 7
NUMBERINGS = [VideoGrid(1), VideoGrid(3), StepGrids(), TokenByToken()]


def _naive(numbering, layouts):
    """Positions of a whole stream, token by token: a list of tuples."""
    out, end, newest, spatial = [], START, None, 0
    for layout in layouts:
        for before, after in layout.texts:
            if isinstance(numbering, VideoGrid):
                time = START if newest is None else newest + numbering.interval
                out += [(time, START + i, START + j)
                        for i in range(layout.rows) for j in range(layout.cols)]  # fmt: skip
                newest, spatial = time, max(spatial, layout.rows, layout.cols)
                end = max(newest, START + spatial - 1) + 1
                continue
            n = 3 if isinstance(numbering, StepGrids) else 1
            out += [(end + k,) * n for k in range(before)]
            end += before
            if n == 3:
                out += [(end, end + i, end + j)
                        for i in range(layout.rows) for j in range(layout.cols)]  # fmt: skip
                end += max(layout.rows, layout.cols)
            else:
                out += [(end + k,) for k in range(layout.rows * layout.cols)]
                end += layout.rows * layout.cols
            out += [(end + k,) * n for k in range(after)]
            end += after
    return out, end


@st.composite
def _streams(draw, texts=True):
    most = 3 if texts else 0
    pair = st.tuples(st.integers(0, most), st.integers(0, most))
    return [
        BlockLayout(
            draw(st.integers(1, 4)), draw(st.integers(1, 4)),
            tuple(draw(st.lists(pair, min_size=1, max_size=3))),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]  # fmt: skip


@pytest.mark.parametrize("numbering", NUMBERINGS, ids=lambda n: type(n).__name__)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_blocks_are_placed_as_token_by_token(numbering, data):
    layouts = data.draw(_streams(texts=not isinstance(numbering, VideoGrid)))
    cursor, parts = Cursor.at(START), []
    for layout in layouts:
        before = cursor.end
        positions, cursor = numbering.place(layout, cursor)
        assert positions.shape == (numbering.axes, layout.tokens)
        assert cursor.end - before <= numbering.span(layout)
        parts.append(positions)
    expected, end = _naive(numbering, layouts)
    assert torch.cat(parts, 1).T.tolist() == [list(token) for token in expected]
    assert cursor.end == end == max(map(max, expected)) + 1


def _stored(numbering, layouts, kept):
    """What two heads keep of a stream: `kept` chooses patches, their steps keep their text."""
    cursor, positions, steps, text, number = Cursor.at(START), [], [], [], 0
    for layout in layouts:
        placed, cursor = numbering.place(layout, cursor)
        positions.append(placed)
        for before, after in layout.texts:
            n = layout.rows * layout.cols
            steps += [number] * (before + n + after)
            text += [True] * before + [False] * n + [True] * after
            number += 1
    steps, text = torch.tensor(steps), torch.tensor(text)
    slots = kept(steps, text)
    return (
        Stored(
            steps[slots][None],
            text[slots][None],
            torch.cat(positions, 1)[:, slots][:, None],
            number - 1,
        ),
        cursor,
    )


@pytest.mark.parametrize("numbering", NUMBERINGS, ids=lambda n: type(n).__name__)
def test_a_whole_memory_keeps_its_numbers(numbering):
    texts = (0, 0) if isinstance(numbering, VideoGrid) else (2, 1)
    layouts = [BlockLayout(2, 3, (texts,) * 3)] * 4
    stored, cursor = _stored(numbering, layouts, lambda steps, _: torch.arange(len(steps))[None])
    positions, after = numbering.renumber(stored, cursor, 10_000)
    assert torch.equal(positions, stored.positions)
    assert (after.newest is None) == (cursor.newest is None)
    assert after.end == cursor.end


@pytest.mark.parametrize("numbering", NUMBERINGS, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("limit", [10_000, 70])
def test_gaps_close_and_steps_stay_whole(numbering, limit):
    texts = (0, 0) if isinstance(numbering, VideoGrid) else (2, 1)
    layouts = [BlockLayout(2, 3, (texts,) * 10)] * 4
    keep = torch.Generator().manual_seed(0)

    def kept(steps, text):
        heads = []
        for chosen in (range(1, 40, 3), range(0, 39, 3)):  # as many steps, not the same
            patches = [
                slot
                for step in chosen
                for slot in ((steps == step) & ~text).nonzero().flatten()[
                    torch.randperm(6, generator=keep)[:2]
                ].tolist()
            ]  # fmt: skip
            own = [i for i in range(len(steps)) if text[i] and int(steps[i]) in chosen]
            heads.append(sorted(patches + own))
        return torch.tensor(heads)

    stored, cursor = _stored(numbering, layouts, kept)
    positions, after = numbering.renumber(stored, cursor, limit)
    assert positions.shape == stored.positions.shape
    assert int(positions.min()) >= START
    assert int(positions.max()) < min(limit, cursor.end)
    assert int(positions.max()) < after.end <= limit
    # Where all does not fit, steps overlap; their patches still come one after the other.
    for head in range(2):
        times = positions[0, 0, head][~stored.text[0, head]]
        assert (times.diff() >= 0).all()
    if isinstance(numbering, StepGrids):
        # Within a step all is moved alike, on every axis.
        shift = positions - stored.positions
        assert torch.equal(shift[0], shift[1])
        assert torch.equal(shift[0], shift[2])
        for head in range(2):
            for step in stored.steps[0, head].unique():
                assert len(shift[0, 0, head][stored.steps[0, head] == step].unique()) == 1
    if isinstance(numbering, VideoGrid):
        assert torch.equal(positions[1:], stored.positions[1:])
    if limit == 10_000 and isinstance(numbering, TokenByToken):
        assert positions[0, 0].tolist() == [list(range(START, START + stored.steps.shape[-1]))] * 2
