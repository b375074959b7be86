"""The demo's plot of the memory over time: as a picture, and how the demo shows it."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from infinipot_ros.ros.demo_chart import WIDTH, ascii_only, chart
from infinipot_ros.ros.demo_history import History, about
from infinipot_ros.ros.demo_view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INDENT = "  "
_KEPT, _UNCAPPED, _CAP, _INK = "#2a78b8", "#9a9a9a", "#c8322b", "#333333"
_DPI = 130


def show(history: History, view: View, file: Path | None) -> str:
    """Show the memory over time, in the terminal and as a picture.

    Args:
        history: what to show.
        view: where to print.
        file: the picture to write; None takes a new file in the folder for temporary files.

    Returns:
        Why a picture that was asked for is not there; empty if it is, or was not asked for.
    """
    view.end_live_line()
    if not history.drawable:
        count = len(history.times_s)
        view.say(f"\n{_INDENT}no plot: {count} status message(s) arrived, it takes two")
        return "" if file is None else f"{file} was not drawn"
    width = min(WIDTH, shutil.get_terminal_size().columns - len(_INDENT) - 1)
    view.say()
    for line in chart(history, width=width, plain=ascii_only(view.out)):
        view.say(_INDENT + line if line else "")
    problem = ""
    try:
        figure = draw(history)
        path = file or _new_file()
        figure.savefig(path, dpi=_DPI)
    except ModuleNotFoundError:
        problem = "no picture of it: `pip install matplotlib` gives one"
    except Exception as error:  # a full disk, a broken matplotlib: the run itself was good
        problem = f"no picture of it: {type(error).__name__}: {' '.join(str(error).split())}"
    view.say(f"\n{_INDENT}{problem or f'the same as a picture: {path}'}")
    return problem if file else ""


def draw(history: History) -> Figure:
    """Draw the memory over time.

    Args:
        history: at least two readings.

    Raises:
        ModuleNotFoundError: matplotlib is missing.
    """
    # It would report on standard error that it builds its cache of fonts, once per machine.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # Without pyplot: no display is looked for, and nothing stays behind.
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=(9.0, 4.8), layout="constrained")
    axes = figure.add_subplot()
    peak = max(*history.kept, *history.uncapped, history.cap, 1)
    axes.set_xlim(0.0, history.end_s)
    axes.set_ylim(0.0, 1.12 * peak)
    if history.uncapped and history.cap:
        axes.step(
            history.times_s,
            history.uncapped,
            where="post",
            color=_UNCAPPED,
            lw=1.6,
            label=f"without a cap: {about(history.uncapped[-1])} at the end",
        )
    axes.fill_between(history.times_s, history.kept, step="post", color=_KEPT, alpha=0.25, lw=0)
    axes.step(history.times_s, history.kept, where="post", color=_KEPT, lw=1.6, label="kept")
    if history.cap:
        axes.axhline(history.cap, color=_CAP, lw=1.4, ls=(0, (5, 3)), label=f"cap: {history.cap:,}")
    if history.asked_s:
        axes.plot(
            history.asked_s,
            [0.02] * len(history.asked_s),
            transform=axes.get_xaxis_transform(),
            ls="none",
            marker="^",
            ms=8,
            color=_INK,
            label="question asked",
        )
    axes.set_title(_title(history), loc="left", color=_INK)
    axes.set_xlabel("seconds after the first image", color=_INK)
    axes.set_ylabel("video tokens in memory, per layer and head", color=_INK)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False)
    return figure


def _title(history: History) -> str:
    if not history.cap:
        return f"Without a cap the memory holds {history.kept[-1]:,} tokens"
    most = f"Never more than {max(history.kept):,} tokens in memory"
    if not history.uncapped:
        return most
    return f"{most}, of {about(history.uncapped[-1])} seen in {history.end_s:.0f} s"


def _new_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="infinipot_demo_", suffix=".png")
    os.close(handle)
    return Path(name)
