"""The demo: what it asks, what it prints, and a whole run."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from infinipot_ros.msg import MemoryStatus
from infinipot_ros.roomworld import RoomWorld
from infinipot_ros.ros.children import Child
from infinipot_ros.ros.demo_plan import plan_for_world, plan_without_truth
from infinipot_ros.ros.demo_view import View, clock, shorten, status_line


@pytest.mark.parametrize("seed", [1, 7, 42])
def test_planned_questions_are_true_and_stay_true_for_a_second(seed):
    world = RoomWorld(seed=seed, tour_s=75.0)
    times = [12.0, 24.0, 36.0, 48.0, 60.0, 72.0, 86.0]
    plan = plan_for_world(world, times, seed)
    assert len(plan) >= 6
    assert len({question.text for question in plan}) >= 4
    assert all(question.truth for question in plan)
    assert [q.time_s for q in plan] == sorted(q.time_s for q in plan)
    for question in plan:
        now, later = (round((question.time_s + d) * 1e9) for d in (0.0, 1.0))
        assert world.visible(now) == world.visible(later)
        assert len(world.sightings(now)) == len(world.sightings(later))


def test_questions_without_truth_are_spread_over_the_times():
    plan = plan_without_truth(["a", "b"], [1.0, 2.0, 3.0])
    assert [(q.time_s, q.text, q.truth) for q in plan] == [
        (1.0, "a", ""),
        (2.0, "b", ""),
        (3.0, "a", ""),
    ]


def test_the_status_line_tells_use_and_caps():
    status = MemoryStatus(frames_encoded=48, tokens_retained=72, tokens_cap=96, compressions=3)
    status.bytes_used, status.bytes_cap = 1_200_000, 1_600_000
    line = status_line(status, 75.0)
    assert "1:15" in line
    assert "72/96 tokens [########..]" in line
    assert "1.20/1.60 MB" in line
    assert "3 compressions" in line
    assert len(line) < 80


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_line_is_updated_in_place_and_a_pipe_gets_plain_lines():
    status = MemoryStatus(tokens_cap=10)
    terminal, pipe = Terminal(), io.StringIO()
    for out in (terminal, pipe):
        view = View(out)
        view.status(status, 1.0)
        view.status(status, 1.2)
        view.answer("red", "red", "quick")
        view.answer("a much longer answer " * 9, "blue", "quick")
    assert terminal.getvalue().count("\r\033[K") >= 2
    assert "\033" not in pipe.getvalue()
    assert pipe.getvalue().count("tokens") == 1
    assert "truth: red          right" in pipe.getvalue()
    assert "wrong" in pipe.getvalue()
    assert max(map(len, pipe.getvalue().splitlines())) < 140


def test_small_words():
    assert clock(61.9) == "1:01"
    assert shorten("a\n b  c", 10) == "a b c"
    assert shorten("abcdefghij", 6) == "abc..."


def test_a_whole_run(ros_environment, tiny_model, tmp_path):
    picture = tmp_path / "plot.png"
    command = [sys.executable, "-m", "infinipot_ros.cli", "demo", "--pace", "5"]
    command += ["--model", str(tiny_model()), "--max-tokens", "96", "--plot", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "9 of 9 questions answered" in done.stdout
    assert "Everything ran." in done.stdout
    assert "cap 96" in done.stdout
    assert "without a cap: about" in done.stdout
    assert f"the same as a picture: {picture}" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_that_cannot_start_fails_and_says_why(ros_environment, tmp_path):
    command = [sys.executable, "-m", "infinipot_ros.cli", "demo", "--video", "missing.mp4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 1
    assert "missing.mp4" in done.stdout
    assert "FAILED" in done.stdout


def test_an_interrupted_run_ends_its_processes_and_does_not_claim_success(
    ros_environment, tiny_model, tmp_path, wait_until
):
    log = tmp_path / "demo.log"
    child = Child(
        "demo", ["demo", "--keep", "--model", str(tiny_model()), "--max-tokens", "96"], log
    )
    try:
        wait_until(lambda: "starting both" in child.output(), what="the start")
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        wait_until(lambda: len(children.read_text().split()) == 2, what="two processes")
        family = [Path("/proc", pid) for pid in children.read_text().split()]
        child.interrupt()
        wait_until(lambda: child.exit_code() is not None, what="the end of the demo")
        assert child.exit_code() == 130
        assert "Everything ran" not in child.output()
        assert "Traceback" not in child.output()
        wait_until(lambda: not any(process.exists() for process in family), what="their end")
    finally:
        child.stop()
