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


def test_a_key_that_stays_is_seldom_moved():
    """Ordinary RoPE comes to its limit often; old tokens must not be turned each time."""
    numbering, limit, cap, frame = TokenByToken(), 3000, 400, 20
    generator = torch.Generator().manual_seed(0)
    cursor = Cursor.at(START)
    steps, positions, moves = (torch.empty(0, dtype=torch.int64) for _ in range(3))
    luck = torch.empty(0)
    renumbered = 0
    for step in range(4000):
        if len(steps) + frame > cap:
            # A reservoir beside the newest 100: now and then something old has to go.
            chances = luck.clone()
            chances[-100:] = 2.0
            kept = chances.topk(300).indices.sort().values
            steps, positions, moves, luck = (x[kept] for x in (steps, positions, moves, luck))
        layout = BlockLayout(4, 5, ((0, 0),))
        if cursor.end + numbering.span(layout) > limit:
            shape = (1, 1, -1)
            stored = Stored(
                steps.view(shape), torch.zeros_like(steps, dtype=torch.bool).view(shape),
                positions.view(1, 1, 1, -1), step - 1,
            )  # fmt: skip
            fresh, cursor = numbering.renumber(stored, cursor, limit - 700)
            fresh = fresh.flatten()
            assert (fresh.diff() > 0).all()
            assert int(fresh[-1]) == cursor.end - 1 < limit - 700
            moves = moves + (fresh != positions)
            positions = fresh
            renumbered += 1
        placed, cursor = numbering.place(layout, cursor)
        steps = torch.cat((steps, torch.full((frame,), step)))
        positions = torch.cat((positions, placed[0]))
        moves = torch.cat((moves, torch.zeros(frame, dtype=torch.int64)))
        luck = torch.cat((luck, torch.rand(frame, generator=generator)))
    lived = steps < 2000
    assert renumbered > 25
    assert lived.sum() > 50
    # Counted anew each time, they would have been moved at almost every one.
    assert float(moves[lived].float().mean()) < renumbered / 8


def test_text_without_its_patches_keeps_its_order():
    steps = torch.tensor([[[3, 3, 3, 9, 9]]])
    text = torch.tensor([[[True, True, True, True, False]]])
    positions = torch.tensor([40, 41, 42, 90, 91]).expand(3, 1, 1, 5)
    fresh, _ = StepGrids().renumber(
        Stored(steps, text, positions, 9), Cursor(START, 91, 93, 1, 1, 1), 1000
    )
    assert fresh[0, 0, 0].diff().tolist()[:2] == [1, 1]
    assert (fresh[0].diff(dim=-1) > 0).all()


def test_sizes_of_steps_long_gone_are_forgotten():
    """After large frames a camera sends small ones: steps need not keep the old distance."""
    numbering = StepGrids()
    cursor = numbering.place(BlockLayout(8, 30, ((5, 2),)), Cursor.at(START))[1]
    parts = []
    for _ in range(4):
        placed, cursor = numbering.place(BlockLayout(2, 2, ((2, 1),)), cursor)
        parts.append(placed)
    steps = torch.arange(1, 5).repeat_interleave(7)[None, None]
    text = torch.tensor([True, True, False, False, False, False, True]).repeat(4)[None, None]
    stored = Stored(steps, text, torch.cat(parts, 1)[:, None, None], 4)
    fresh, after = numbering.renumber(stored, cursor, 1000)
    assert after.end == START + 4 * (2 + 2 + 1)
    assert int(fresh.min()) == START
