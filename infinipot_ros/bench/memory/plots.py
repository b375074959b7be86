"""Plots of a study; matplotlib is imported only here, and only when something is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from infinipot_ros.bench.memory.answers import ALL, Answers
from infinipot_ros.bench.memory.figures import LATER, accuracy, fresh_and_later
from infinipot_ros.bench.memory.variants import BASE, FULL

# Okabe and Ito's colours, told apart by those who see fewer of them, then some more.
_COLORS = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#7B3294", "#8C510A", "#01665E", "#C51B7D", "#7F7F00", "#3B3B98",
)  # fmt: skip
_MARKERS = "osD^vPX*hp<>"
_BASELINES: dict[str, tuple[str, Any]] = {
    "uniform": ("0.20", "-."),
    "reservoir": ("0.30", (0, (6, 1.5))),
    "sliding_window": ("0.40", (0, (1, 1))),
    "recent": ("0.50", (0, (1, 2.5))),
}
"""What chooses without looking at keys and values is grey: (shade, line)."""
_PANEL = (2.7, 2.5)
_DPI = 150


def plot_by_cap(answers: Answers, path: Path, title: str) -> bool:
    """Draw accuracy against cap: a column a regime, a row fresh and a row later questions."""
    rows = [
        label
        for label in ("0", LATER)
        if any(label in fresh_and_later(answers, cap) for cap in answers.caps)
    ]
    names = {"0": "asked at once", LATER: "asked later"}
    figure, axes = _panels(len(rows), len(answers.regimes))
    caps = sorted(answers.caps, key=Fraction)
    for row, label in enumerate(rows):
        there = [cap for cap in caps if label in fresh_and_later(answers, cap)]
        for column, regime in enumerate(answers.regimes):
            axis = axes[row][column]
            for policy in answers.policies:
                points = [
                    (float(Fraction(cap)), found[0])
                    for cap in there
                    if (found := _at(answers, policy, cap, label, regime)) is not None
                ]
                _line(axis, answers, policy, points)
            _guessing(axis, answers, regime)
            axis.set_xscale("log", base=2)
            axis.set_xticks([float(Fraction(cap)) for cap in caps], caps)
            axis.minorticks_off()
            _frame(axis, row == 0, column == 0, regime, f"accuracy, {names[label]}")
            if row == len(rows) - 1:
                axis.set_xlabel("cap, share of the stream")
    _finish(figure, axes, path, title)
    return True


def plot_by_delay(answers: Answers, path: Path, title: str) -> bool:
    """Draw accuracy against delay: a column a regime, a row a cap with more than one delay.

    Returns whether there is such a cap, and so a plot.
    """
    caps = [cap for cap in answers.caps if len(answers.delays_at(cap)) > 1]
    if not caps:
        return False
    figure, axes = _panels(len(caps), len(answers.regimes))
    for row, cap in enumerate(caps):
        delays = answers.delays_at(cap)
        for column, regime in enumerate(answers.regimes):
            axis = axes[row][column]
            for policy in answers.policies:
                points = [
                    (float(place), found[0])
                    for place, delay in enumerate(delays)
                    if (found := accuracy(answers, policy, cap, (delay,), ALL, regime)) is not None
                ]
                _line(axis, answers, policy, points)
            _guessing(axis, answers, regime)
            axis.set_xticks(range(len(delays)), [f"{delay}x" for delay in delays])
            axis.set_xlim(-0.25, max(map(len, map(answers.delays_at, caps))) - 0.75)
            _frame(axis, row == 0, column == 0, regime, f"accuracy at cap {cap}")
            if row == len(caps) - 1:
                axis.set_xlabel("delay, times the cap")
    _finish(figure, axes, path, title)
    return True


def _at(answers: Answers, policy: str, cap: str, label: str, regime: str) -> Any:
    return accuracy(answers, policy, cap, fresh_and_later(answers, cap)[label], ALL, regime)


def _panels(rows: int, columns: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")  # files only: there need not be a screen
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(_PANEL[0] * columns + 0.6, _PANEL[1] * rows + 1.3),
        sharey=True,
        sharex=rows > 1,
        squeeze=False,
        layout="constrained",
    )
    return figure, axes


def _line(axis: Any, answers: Answers, policy: str, points: Sequence[tuple[float, Any]]) -> None:
    if not points:
        return
    xs = [x for x, _ in points]
    values = [estimate.value for _, estimate in points]
    if policy == FULL:
        axis.plot(xs, values, color="black", linestyle="--", linewidth=1.2, label=policy, zorder=4)
        return
    scored = [name for name in answers.policies if name not in (FULL, *_BASELINES)]
    index = scored.index(policy) if policy in scored else 0
    color, style = _BASELINES.get(policy, (_COLORS[index % len(_COLORS)], "-"))
    axis.fill_between(
        xs,
        [estimate.low for _, estimate in points],
        [estimate.high for _, estimate in points],
        color=color,
        alpha=0.08,
        linewidth=0,
    )
    axis.plot(
        xs,
        values,
        color=color,
        linestyle=style,
        marker=_MARKERS[index % len(_MARKERS)] if policy in scored else None,
        markersize=4,
        linewidth=2.0 if policy == BASE else 1.3,
        markeredgewidth=0,
        label=policy,
        zorder=5 if policy == BASE else 3,
    )


def _guessing(axis: Any, answers: Answers, regime: str) -> None:
    guessing = answers.guessing[regime]
    axis.axhspan(0, guessing, color="0.94", zorder=0, label="below guessing")


def _frame(axis: Any, top: bool, left: bool, regime: str, label: str) -> None:
    axis.set_ylim(0, 1.02)
    axis.grid(True, color="0.9", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    if top:
        axis.set_title(regime, fontsize=11)
    if left:
        axis.set_ylabel(label, fontsize=9)


def _finish(figure: Any, axes: Any, path: Path, title: str) -> None:
    from matplotlib import pyplot

    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.suptitle(title, fontsize=11)
    figure.legend(
        handles, labels, loc="outside lower center", ncols=-(-len(labels) // 2), frameon=False,
        fontsize=9,
    )  # fmt: skip
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
