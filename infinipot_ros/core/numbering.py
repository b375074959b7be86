"""Numbering: how a family of models counts the tokens of an endless stream on its position axes.

Three ways are in use.  Each places a block behind what is there already, says where text after the
video goes on, and re-indexes a memory whose numbers have run too far ahead.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from infinipot_ros.core.positions import compact_steps, step_ranks
from infinipot_ros.core.spans import Spans, StepGridsSpans, TokenByTokenSpans, VideoGridSpans


@dataclass(frozen=True)
class BlockLayout:
    """What a block consists of: for each step text, a patch grid, and text again.

    Attributes:
        rows: patch rows of a step.
        cols: patch columns of a step.
        texts: for each step, the number of text tokens before and after its patches.
    """

    rows: int
    cols: int
    texts: tuple[tuple[int, int], ...]

    @property
    def steps(self) -> int:
        """Number of temporal steps."""
        return len(self.texts)

    @property
    def tokens(self) -> int:
        """Number of tokens, patches and text."""
        return self.steps * self.rows * self.cols + sum(map(sum, self.texts))


@dataclass(frozen=True)
class Cursor:
    """Where a stream has got to on the position axes.

    Attributes:
        start: first position after the prefix.
        newest: position on the first axis of the newest step's patches; None before the first.
        end: position of text that would follow now.
        before: most text tokens before the patches of a step in memory.
        extent: most positions that the patches of a step in memory take.
        after: most text tokens after the patches of a step in memory.
        settled: below it lie tokens that need not be moved again; with ordinary RoPE only.
        young: from `settled` to there lie tokens that were moved once.
    """

    start: int
    newest: int | None
    end: int
    before: int = 0
    extent: int = 0
    after: int = 0
    settled: int = 0
    young: int = 0

    @classmethod
    def at(cls, start: int) -> Cursor:
        """Return the cursor of a stream that has only its prefix."""
        return cls(start=start, newest=None, end=start, settled=start, young=start)

    def grown(self, layout: BlockLayout, extent: int) -> Cursor:
        """Return a cursor that knows of the sizes of this block's steps."""
        return replace(
            self,
            before=max(self.before, *(before for before, _ in layout.texts)),
            extent=max(self.extent, extent),
            after=max(self.after, *(after for _, after in layout.texts)),
        )


@dataclass(frozen=True, eq=False)
class Stored:
    """The stored tokens of a stream, as far as re-indexing needs to know them.

    Attributes:
        steps: int ``[L, H, N]``, step of each token, non-decreasing along N.
        text: bool ``[L, H, N]``, tokens that are text of their step.
        positions: int ``[A, L, H, N]``, present positions.
        newest_step: index of the newest step of the stream, in memory or not.
    """

    steps: Tensor
    text: Tensor
    positions: Tensor
    newest_step: int


class Numbering(Spans):
    """One way of counting.

    Attributes:
        axes: number of position axes A.
    """

    axes: int

    @abstractmethod
    def place(self, layout: BlockLayout, cursor: Cursor) -> tuple[Tensor, Cursor]:
        """Return the positions int64 ``[A, n]`` of a block's tokens, and the cursor behind it."""

    @abstractmethod
    def span(self, layout: BlockLayout) -> int:
        """Return how far a block moves the cursor at most."""

    @abstractmethod
    def renumber(self, stored: Stored, cursor: Cursor, limit: int) -> tuple[Tensor, Cursor]:
        """Re-index what is stored, without gaps.

        Args:
            stored: at least one token.
            cursor: of the stream.
            limit: first position that must not be given.

        Returns:
            int64 ``[A, L, H, N]`` new positions, and the cursor behind them.
        """


class VideoGrid(VideoGridSpans, Numbering):
    """Time, row and column of one endless video (Qwen2-VL, Qwen2.5-VL).

    A step lies ``interval`` behind the one before on the first axis; rows and columns are counted
    from the end of the prefix, whatever the time.  Text follows at one past the largest position on
    any axis, as transformers 4.57 computed it, with which the weights were trained; 5.3 and later
    place it elsewhere when left to themselves.

    Args:
        interval: distance of two successive steps.
    """

    axes = 3

    def place(self, layout: BlockLayout, cursor: Cursor) -> tuple[Tensor, Cursor]:
        """See the base class; these models write no text between steps."""
        first = cursor.start if cursor.newest is None else cursor.newest + self.interval
        sizes = (layout.steps, layout.rows, layout.cols)
        step, row, col = torch.cartesian_prod(*map(torch.arange, sizes)).view(-1, 3).unbind(-1)
        positions = torch.stack(
            (first + step * self.interval, cursor.start + row, cursor.start + col)
        )
        grown = cursor.grown(layout, max(layout.rows, layout.cols))
        return positions, self._at(grown, first + (layout.steps - 1) * self.interval)

    def span(self, layout: BlockLayout) -> int:
        """See the base class."""
        return max(layout.steps * self.interval, layout.rows, layout.cols)

    def renumber(self, stored: Stored, cursor: Cursor, limit: int) -> tuple[Tensor, Cursor]:
        """Close the gaps on the time axis; rows and columns stay as they are."""
        time, newest = compact_steps(
            stored.steps,
            stored.newest_step,
            origin=cursor.start,
            interval=self.interval,
            limit=limit,
        )
        positions = stored.positions.to(torch.int64, copy=True)
        positions[0] = time
        extent = int(positions[1:].max()) - cursor.start + 1
        return positions, self._at(replace(cursor, extent=extent), newest)

    def _at(self, cursor: Cursor, newest: int) -> Cursor:
        end = max(newest, cursor.start + cursor.extent - 1) + 1
        return replace(cursor, newest=newest, end=end)


class StepGrids(StepGridsSpans, Numbering):
    """Text, then rows and columns of one image, then text: step behind step (Qwen3-VL).

    Text counts on all axes alike.  The patches of a step share one position on the first axis, rows
    and columns are counted from there, and what follows goes on past the largest of them.
    """

    axes = 3

    def place(self, layout: BlockLayout, cursor: Cursor) -> tuple[Tensor, Cursor]:
        """See the base class."""
        row, col = (
            torch.cartesian_prod(torch.arange(layout.rows), torch.arange(layout.cols))
            .view(-1, 2)
            .unbind(-1)
        )
        grid = torch.stack((torch.zeros_like(row), row, col))
        extent = max(layout.rows, layout.cols)
        at, newest, parts = cursor.end, cursor.newest, []
        for before, after in layout.texts:
            newest = at + before
            end = newest + extent
            parts += [_run(at, before), grid + newest, _run(end, after)]
            at = end + after
        grown = cursor.grown(layout, extent)
        return torch.cat(parts, 1), replace(grown, newest=newest, end=at)

    def span(self, layout: BlockLayout) -> int:
        """See the base class."""
        extent = max(layout.rows, layout.cols)
        return sum(before + extent + after for before, after in layout.texts)

    def renumber(self, stored: Stored, cursor: Cursor, limit: int) -> tuple[Tensor, Cursor]:
        """Move steps together as wholes: within a step, all keeps its place."""
        cursor = _measured(stored, cursor)
        time, newest = compact_steps(
            stored.steps,
            stored.newest_step,
            origin=cursor.start + cursor.before,
            interval=cursor.before + cursor.extent + cursor.after,
            limit=limit - cursor.extent - cursor.after,
        )
        positions = stored.positions.to(torch.int64, copy=True)
        positions += time - _patch_times(stored)
        # Text that has outlived the patches of its step is not known by them: keep it in range.
        positions.clamp_(cursor.start, limit - 1)
        return positions, replace(cursor, newest=newest, end=newest + cursor.extent + cursor.after)


class TokenByToken(TokenByTokenSpans, Numbering):
    """One token behind the other on one axis: ordinary RoPE (LLaVA, SmolVLM, InternVL)."""

    axes = 1

    def place(self, layout: BlockLayout, cursor: Cursor) -> tuple[Tensor, Cursor]:
        """See the base class."""
        end = cursor.end + layout.tokens
        newest = end - layout.texts[-1][1] - layout.rows * layout.cols
        return torch.arange(cursor.end, end).unsqueeze(0), replace(cursor, newest=newest, end=end)

    def span(self, layout: BlockLayout) -> int:
        """See the base class."""
        return layout.tokens

    def renumber(self, stored: Stored, cursor: Cursor, limit: int) -> tuple[Tensor, Cursor]:
        """Close the gaps behind what has settled; where that does not do, count all anew.

        A stream of whole frames comes to its limit every few minutes, and a key in half precision
        must not be turned each time.  Most tokens are evicted young.  So tokens are moved once
        when they are young and once when they have stayed, then lie still, gaps between them and
        all, until the settled ones reach the limit.  Where there are more tokens than positions,
        neighbours share one.
        """
        time = stored.positions[0]
        n_tokens = time.shape[-1]
        settled, young = time < cursor.settled, time < cursor.young
        n_settled, n_young = settled.sum(-1, keepdim=True), young.sum(-1, keepdim=True)
        most_stayed = int((n_young - n_settled).max())
        most_new = int((n_tokens - n_young).max())
        place = torch.arange(n_tokens, device=time.device)
        edge = cursor.settled + most_stayed
        end = edge + most_new
        if end <= limit:
            # The newest tokens of all heads end together; a block to come is turned alike for all.
            stayed = cursor.settled + place - n_settled
            positions = torch.where(young, stayed, end - n_tokens + place)
            positions = torch.where(settled, time, positions)
        else:
            room = min(n_tokens, limit - cursor.start)
            end = cursor.start + room
            edge = max(cursor.start, end - most_new)
            positions = (cursor.start + place * room // n_tokens).expand_as(time)
        positions = positions.long().unsqueeze(0)
        return positions, replace(cursor, newest=end - 1, end=end, settled=edge, young=end)


def _run(start: int, length: int) -> Tensor:
    """Positions of text, int64 ``[3, length]``."""
    return torch.arange(start, start + length).expand(3, -1)


def _patch_times(stored: Stored) -> Tensor:
    """Return for each token the position of its step's patches on the first axis, ``[L, H, N]``.

    Of a step that has text only, the position of its first token.
    """
    rank, time = step_ranks(stored.steps), stored.positions[0].long()
    none = torch.full_like(rank, -1)
    patches = torch.where(stored.text, -1, time)
    of_patches = none.scatter_reduce(-1, rank, patches, "amax").gather(-1, rank)
    first = torch.full_like(rank, torch.iinfo(torch.int64).max)
    of_text = first.scatter_reduce(-1, rank, time, "amin").gather(-1, rank)
    return torch.where(of_patches < 0, of_text, of_patches)


def _measured(stored: Stored, cursor: Cursor) -> Cursor:
    """Return the cursor with the sizes of the steps that are in memory, not of those long gone."""
    offsets = stored.positions.long() - _patch_times(stored)
    far = int(offsets.where(~stored.text, 0).max()) + 1
    before = -int(offsets[0].where(stored.text, 0).min())
    behind = int(offsets[0].where(stored.text, 0).max()) + 1
    return replace(cursor, before=max(0, before), extent=far, after=max(0, behind - far))
