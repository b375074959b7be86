"""The demo's chart for the terminal: tokens kept under the cap, and what there were without it."""

from __future__ import annotations

import locale
import math
import os
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from infinipot_ros.ros.demo_history import History, about

WIDTH = 70
"""Widest chart, characters."""

_ROWS = 16
# The cap stands at least this high, or the teeth of the saw would be too small to see: a memory
# without a cap then leaves the chart through its top.
_ROWS_UNDER_CAP = 4
_FEWEST_COLUMNS = 12
_NARROWEST_TEXT = 24
_TICK_STEPS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)


@dataclass(frozen=True)
class _Ink:
    """Characters to draw with.

    Attributes:
        bars: a cell filled to 1/n, 2/n, ... n/n of its height.
        cap: a line at the bottom of a cell.
        dots: for the left and the right half of a cell, marks from the bottom to the top that can
            be laid over each other; where there are none, `line` stands for all of them.
        line: mark of the comparison in the legend, and in the chart where there are no dots.
        up: where the comparison leaves the chart.
        axis: vertical, corner, horizontal, tick.
    """

    bars: str
    cap: str
    dots: tuple[tuple[int, ...], tuple[int, ...]] | None
    line: str
    up: str
    axis: str


_BLOCKS = _Ink(
    bars="▁▂▃▄▅▆▇█",
    cap="▁",
    dots=((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)),
    line="⠒",
    up="↑",
    axis="│└─┴",
)
_ASCII = _Ink(bars=".:#", cap="_", dots=None, line="*", up="^", axis="|+-+")
_BRAILLE = 0x2800


def ascii_only(out: TextIO) -> bool:
    """Say whether the output takes, or its terminal shows, nothing but ASCII."""
    if os.environ.get("TERM") == "linux":  # the console's font has 512 characters
        return True
    # In the locale C Python writes UTF-8 all the same, but whoever set it reads ASCII.
    if locale.nl_langinfo(locale.CODESET) in ("ANSI_X3.4-1968", "US-ASCII"):
        return True
    try:
        "█⠒↑│×".encode(out.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def chart(history: History, *, width: int = WIDTH, plain: bool = False) -> list[str]:
    """Draw the memory over time.

    Args:
        history: what to draw.
        width: widest line, characters; below 24 it is 24.
        plain: draw with ASCII.

    Returns:
        Lines without line ends; none if fewer than two readings are there.
    """
    if not history.drawable:
        return []
    ink = _ASCII if plain else _BLOCKS
    unit = _unit(history)
    labels = _labels(history, unit)
    gutter = max(map(len, ["asked", *labels.values()]))
    columns = max(_FEWEST_COLUMNS, width - gutter - 2)
    area = _area(history, unit, columns, ink)
    upright, corner, flat, tick = tuple(ink.axis)
    lines = ["tokens in memory, per layer and head"]
    for row in reversed(range(_ROWS)):
        cells = "".join(area[row])
        lines.append(f"{labels.get(row, ''):>{gutter}} {upright}{cells}".rstrip())
    ticks = _ticks(history.end_s, columns)
    scale = "".join(tick if column in ticks else flat for column in range(columns))
    lines.append(f"{'0':>{gutter}} {corner}{scale}")
    lines.append(" " * (gutter + 2) + _under(ticks, columns))
    if history.asked_s:
        asked = {_column(time_s, history.end_s, columns) for time_s in history.asked_s}
        marks = "".join("?" if column in asked else " " for column in range(columns))
        lines.append(f"{'asked':>{gutter}}  {marks}".rstrip())
    lines.append("")
    for text in _legend(history, ink):
        lines += textwrap.wrap(text, max(width, _NARROWEST_TEXT), subsequent_indent="   ")
    return lines


def _unit(history: History) -> float:
    """Return the tokens that one row of the chart stands for; the cap is at a row's edge."""
    peak = max(*history.kept, *history.uncapped, 1)
    if not history.cap:
        return peak / _ROWS
    below = math.floor(_ROWS * history.cap / max(peak, 1.25 * history.cap))
    return history.cap / max(_ROWS_UNDER_CAP, below)


def _labels(history: History, unit: float) -> dict[int, str]:
    """Return what stands left of the rows."""
    if not history.cap:
        return {row: f"{row * unit:,.0f}" for row in range(4, _ROWS, 4)}
    below = round(history.cap / unit)
    labels = {row: f"{row * unit:,.0f}" for row in range(below, _ROWS, below)}
    return labels | {below: f"cap {history.cap:,}"}


def _area(history: History, unit: float, columns: int, ink: _Ink) -> list[list[str]]:
    """Return the cells, row by row from the bottom."""
    cells = [[" "] * columns for _ in range(_ROWS)]
    if history.cap:
        cells[round(history.cap / unit)] = [ink.cap] * columns
    levels = len(ink.bars)
    taken = set()
    for column in range(columns):
        kept = _value(history.times_s, history.kept, (column + 1) / columns * history.end_s)
        height = round(kept / unit * levels)
        for row in range(min(_ROWS, math.ceil(height / levels))):
            cells[row][column] = ink.bars[min(levels, height - row * levels) - 1]
            taken.add((row, column))
    _draw_line(history, unit, ink, cells, taken)
    return cells


def _draw_line(
    history: History,
    unit: float,
    ink: _Ink,
    cells: list[list[str]],
    taken: set[tuple[int, int]],
) -> None:
    """Draw the comparison from where it leaves the bars, into cells that none of them has taken."""
    if not (history.uncapped and history.cap):
        return
    columns = len(cells[0])
    steps = len(ink.dots[0]) if ink.dots else 1
    for column in range(columns):
        dots: dict[int, int] = {}
        for half in range(2):
            time_s = (column + (half + 0.5) / 2) / columns * history.end_s
            total = _value(history.times_s, history.uncapped, time_s)
            if total > _value(history.times_s, history.kept, time_s):
                row, step = divmod(math.floor(total / unit * steps), steps)
                dots[row] = dots.get(row, 0) | (ink.dots[half][step] if ink.dots else 0)
        for row, mask in dots.items():
            if row < _ROWS and (row, column) not in taken:
                cells[row][column] = chr(_BRAILLE + mask) if ink.dots else ink.line
        if dots and min(dots) >= _ROWS:
            cells[-1][column] = ink.up
            return


def _value(times_s: Sequence[float], values: Sequence[float], time_s: float) -> float:
    """Return the value that was last read at a time; 0 before the first."""
    index = bisect_right(times_s, time_s + 1e-9)
    return values[index - 1] if index else 0.0


def _column(time_s: float, end_s: float, columns: int) -> int:
    return min(columns - 1, max(0, math.floor(time_s / end_s * columns)))


def _ticks(end_s: float, columns: int) -> dict[int, str]:
    """Return labels by column, far enough apart to be read."""
    fitting = (step for step in _TICK_STEPS_S if step / end_s * columns >= 9)
    step = next(fitting, math.ceil(end_s))
    times = [index * step for index in range(int(end_s / step) + 1)]
    return {_column(time_s, end_s, columns): f"{time_s} s" for time_s in times}


def _under(ticks: dict[int, str], columns: int) -> str:
    """Return the line of labels, each under its tick as far as there is room."""
    line = [" "] * columns
    for column, label in ticks.items():
        start = max(0, min(columns - len(label), column - label.index(" ") // 2))
        line[start : start + len(label)] = label
    return "".join(line).rstrip()


def _legend(history: History, ink: _Ink) -> list[str]:
    lines = []
    if history.cap:
        lines.append(f"{ink.bars[-1] * 2} kept: never more than {max(history.kept):,} tokens")
    else:
        lines.append(f"{ink.bars[-1] * 2} kept: {history.kept[-1]:,} tokens, no cap")
    if history.uncapped and history.cap:
        total = history.uncapped[-1]
        lines.append(
            f"{ink.line * 2} without a cap: {about(total)} tokens after {history.end_s:.0f} s, "
            f"{total / history.cap:.1f} times the cap"
        )
    return lines
