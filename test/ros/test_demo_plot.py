"""The demo's plot: what the readings tell, the chart in the terminal, the picture."""

from __future__ import annotations

import argparse
import io
import re
import sys

import pytest

from infinipot_ros.ros.demo_chart import ascii_only, chart
from infinipot_ros.ros.demo_history import History, Reading
from infinipot_ros.ros.demo_options import pace, plot_file
from infinipot_ros.ros.demo_plot import draw, show
from infinipot_ros.ros.demo_view import View

FIRST_NS = 1_700_000_000_000_000_000
CAP = 288


def readings(seconds, *, cap=CAP, period_s=0.5, tokens_per_step=9, block=4):
    """Return what a node says that takes a step a second and keeps 3/4 of its cap."""
    out = []
    tokens = blocks = compressions = 0
    for index in range(int(seconds / period_s) + 1):
        while (blocks + 1) * block <= index * period_s:
            if cap and tokens + block * tokens_per_step > cap:
                tokens, compressions = 3 * cap // 4, compressions + 1
            tokens += block * tokens_per_step
            blocks += 1
        stamp_ns = FIRST_NS + round(index * period_s * 1e9)
        out.append(Reading(stamp_ns, tokens, cap, 2 * block * blocks, blocks, compressions))
    return out


def history(seconds, *, asked_s=(), **changes):
    return History.of(readings(seconds, **changes), FIRST_NS, asked_s)


def test_without_a_cap_every_token_would_still_be_there():
    seen = history(400)
    assert seen.kept == tuple(reading.tokens for reading in readings(400))
    assert max(seen.kept) == CAP
    assert seen.uncapped == pytest.approx(history(400, cap=0).kept)


def test_the_time_begins_with_the_first_image():
    before = Reading(FIRST_NS - 1, 0, CAP, 0, 0, 0)
    seen = History.of([before, *readings(10)], FIRST_NS, [2.0])
    assert seen == history(10, asked_s=[2.0])
    assert seen.times_s[:3] == (0.0, 0.5, 1.0)


def test_a_reset_empties_both_memories():
    start = readings(60)
    last_ns = start[-1].stamp_ns
    after = [
        Reading(last_ns + i * 10**9, 36 * i, CAP, start[-1].frames + 8 * i, i, 0) for i in (1, 2)
    ]
    assert History.of(start + after, FIRST_NS, ()).uncapped[-2:] == (36.0, 72.0)


def test_where_the_readings_do_not_tell_there_is_no_comparison():
    late = readings(100)[-1:]
    assert late[0].compressions
    assert History.of(late, FIRST_NS, ()).uncapped == ()
    assert History.of([], FIRST_NS, ()) == History((), (), (), 0)


@pytest.mark.parametrize("width", [40, 60, 70])
@pytest.mark.parametrize("seconds", [1, 3, 24, 118, 1000, 100_000])
@pytest.mark.parametrize("plain", [False, True])
def test_a_chart_fits_its_width_and_plain_ones_are_ascii(width, seconds, plain):
    period_s = max(0.5, seconds / 500)
    seen = history(seconds, asked_s=[0.0, seconds / 2, seconds], period_s=period_s)
    lines = chart(seen, width=width, plain=plain)
    assert max(map(len, lines)) <= width
    assert len(lines) <= 24  # the usual terminal
    assert all(line == line.rstrip() for line in lines)
    assert "".join(lines).isascii() == plain
    (asked,) = (line for line in lines if line.lstrip().startswith("asked"))
    assert asked.count("?") == 3
    assert len(asked) == width


def test_a_chart_shows_the_saw_below_the_cap_and_the_line_that_leaves_it():
    lines = chart(history(118, asked_s=[12.0]), plain=True)
    at = next(i for i, line in enumerate(lines) if "cap 288" in line)
    assert re.search(r"\| +(\.\.##+){7,}", lines[at + 1])
    assert set(lines[at].split("|")[1]) <= {"_", "*"}
    above = [line.find("*") for line in lines[:at] if "*" in line]
    assert len(above) >= 8
    assert above == sorted(above, reverse=True)
    assert "## kept: never more than 288 tokens" in lines
    assert "** without a cap: about 1,040 tokens after 118 s, 3.6 times the cap" in lines


def test_a_line_too_high_for_the_chart_leaves_it_through_the_top():
    lines = chart(history(400))
    assert "↑" in lines[1]
    at = next(i for i, line in enumerate(lines) if "cap 288" in line)
    assert set(lines[at + 1].split("│")[1].strip()) >= {"█", "▄"}  # the teeth are still seen


def test_a_memory_over_its_cap_is_drawn_over_it():
    over = [Reading(FIRST_NS + i * 10**9, 110 * i, 96, 8 * i, i, 0) for i in range(2)]
    lines = chart(History.of(over, FIRST_NS, ()), plain=True)
    assert "#" in next(line for line in lines if "cap 96" in line)


def test_without_a_cap_there_is_only_what_is_kept():
    lines = chart(history(60, cap=0), plain=True)
    assert lines[-1] == "## kept: 540 tokens, no cap"
    assert "*" not in "".join(lines)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("wanted", [False, True])
def test_too_short_a_run_is_told_and_not_drawn(tmp_path, count, wanted):
    seen = History.of(readings(1)[:count], FIRST_NS, [])
    out, file = io.StringIO(), tmp_path / "plot.png"
    assert chart(seen) == []
    assert bool(show(seen, View(out), file if wanted else None)) == wanted
    assert f"{count} status message(s)" in out.getvalue()
    assert not file.exists()


class Stream(io.TextIOWrapper):
    def __init__(self, encoding):
        super().__init__(io.BytesIO(), encoding=encoding)


def test_outputs_that_take_no_blocks_get_ascii(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("locale.nl_langinfo", lambda _: "UTF-8")
    assert not ascii_only(Stream("utf-8"))
    assert not ascii_only(io.StringIO())
    assert ascii_only(Stream("latin-1"))
    assert ascii_only(Stream("ascii"))
    monkeypatch.setenv("TERM", "linux")
    assert ascii_only(Stream("utf-8"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("locale.nl_langinfo", lambda _: "ANSI_X3.4-1968")
    assert ascii_only(Stream("utf-8"))


@pytest.mark.parametrize("cap", [CAP, 0])
def test_the_picture(cap):
    seen = history(118, asked_s=[12.0, 24.0], cap=cap)
    (axes,) = draw(seen).axes
    lines = {line.get_label().split(":")[0]: line for line in axes.lines}
    assert list(lines["kept"].get_ydata()) == list(seen.kept)
    assert list(lines["question asked"].get_xdata()) == [12.0, 24.0]
    if cap:
        assert list(lines["without a cap"].get_ydata()) == list(seen.uncapped)
        assert set(lines["cap"].get_ydata()) == {CAP}
        assert "288" in axes.get_title(loc="left")
    assert len(lines) == (4 if cap else 2)


def test_the_picture_is_written_and_its_path_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for wanted in (tmp_path / "plot.png", None):
        out = Stream("latin-1")
        assert show(history(30), View(out), wanted) == ""
        out.seek(0)
        path = re.search(r"as a picture: (\S+)", out.read())[1]
        assert wanted is None or path == str(wanted)
        with open(path, "rb") as file:
            assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("wanted", [False, True])
def test_without_matplotlib_a_line_says_how_to_get_it(tmp_path, monkeypatch, wanted):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    out = io.StringIO()
    problem = show(history(30), View(out), tmp_path / "plot.png" if wanted else None)
    assert "cap 288" in out.getvalue()
    assert "pip install matplotlib" in out.getvalue().splitlines()[-1]
    assert bool(problem) == wanted
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_cannot_be_written_is_told(tmp_path):
    out, file = io.StringIO(), tmp_path / "gone" / "plot.png"
    assert "FileNotFoundError" in show(history(30), View(out), file)
    assert "FileNotFoundError" in out.getvalue().splitlines()[-1]


def test_the_option_takes_only_what_can_be_drawn_and_written(tmp_path):
    assert plot_file(str(tmp_path / "a.SVG")) == tmp_path / "a.SVG"
    (tmp_path / "folder.png").mkdir()
    for name, message in {
        "plot": r"no picture.*\.png",
        "plot.jpg": r"no picture.*\.png",
        "missing/plot.png": "no folder",
        "folder.png": "cannot be written",
        300 * "x" + ".png": "cannot be written: .*too long",
    }.items():
        with pytest.raises(argparse.ArgumentTypeError, match=message):
            plot_file(str(tmp_path / name))
    with pytest.raises(argparse.ArgumentTypeError, match=r"cannot be written: .*home"):
        plot_file("~nobody_of_this_name/plot.png")


def test_a_pace_that_no_clock_can_keep_is_refused_at_once() -> None:
    assert pace("2.5") == 2.5
    for text in ("0", "-1", "nan", "inf", "fast"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is no pace; choose"):
            pace(text)
