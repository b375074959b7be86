"""The command line: help, refusals, and `ask` and `camera` against a live node."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import pytest
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage, Image

from infinipot_ros import cli
from infinipot_ros.replay.sources import PacedSource, open_source
from infinipot_ros.ros.camera import rounds


def run_cli(*arguments, timeout_s=90):
    """Run `infinipot ARGUMENTS...` to its end."""
    command = [sys.executable, "-m", "infinipot_ros.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_help_names_every_command_and_imports_nothing_heavy():
    code = (
        "import sys\nfrom infinipot_ros.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'rclpy', 'numpy', 'cv2', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command in ("node", "ask", "camera", "demo", "bench"):
        assert f"\n    {command}" in done.stdout


@pytest.mark.parametrize(
    "arguments", [["ask"], ["camera"], ["demo"], ["node"], ["bench", "speed"]], ids=" ".join
)
def test_every_command_explains_itself(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--help"])
    assert ended.value.code == 0
    assert f"infinipot {' '.join(arguments)}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["camera", "--size", "big"], "WIDTHxHEIGHT"),
        (["camera", "--rate", "0"], "images/s"),
        (["demo", "--bag", "a", "--video", "b"], "not allowed"),
    ],
)
def test_wrong_usage_is_refused(arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["bench", "speed", "--model", "nosuch"], "model 'nosuch' is neither 'roomworld'"),
        (["bench", "soak", "--max-tokens", "10"], "raise max_tokens to at least 72"),
        (["node", "--ros-args", "--params-file", "/nosuch.yaml"], "/nosuch.yaml"),
        (["node", "--ros-args", "-p", "memory.max_tokens:=lots"], "memory.max_tokens"),
        (["node", "model:=roomworld"], "--ros-args -p"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_a_user_can_mend_is_a_line_and_no_traceback(ros_environment, arguments, words):
    done = run_cli(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ros_arguments_may_stand_anywhere():
    split = cli._split_ros_arguments
    assert split(["ask", "q", "--ros-args", "-r", "a:=b"]) == (
        ["ask", "q"],
        ["--ros-args", "-r", "a:=b"],
    )
    assert split(["ask", "--ros-args", "-r", "a:=b", "--", "q"])[0] == ["ask", "q"]


def test_a_loop_goes_on_in_time_where_it_began_again():
    class Three(PacedSource):
        def _pixels(self):
            import numpy as np

            return iter([np.zeros((2, 2, 3), np.uint8)] * 3)

    images = rounds(Three("three", 10.0), loop=True)
    times = [next(images).time_ns for _ in range(7)]
    assert times == [i * 100_000_000 for i in range(7)]
    assert len(list(rounds(Three("three", 10.0), loop=False))) == 3


def test_ask_says_whom_it_could_have_asked(graph):
    done = run_cli("ask", "mug ?", "--node", "nobody")
    assert done.returncode == 1
    assert "no node 'nobody'" in done.stderr
    assert "infinipot node" in done.stderr


def test_camera_refuses_what_it_cannot_play(tmp_path):
    done = run_cli("camera", "--source", str(tmp_path / "missing.mp4"))
    assert done.returncode == 1
    assert "missing.mp4" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options, kind", [([], Image), (["--compressed"], CompressedImage)])
def test_camera_publishes_as_a_driver_does(graph, stage, wait_until, options, kind):
    topic = f"/driver{len(options)}/image"
    messages = graph.collect(kind, topic, qos_profile_sensor_data)
    before_ns = time.time_ns()
    child = stage.start(
        "camera", "--topic", topic, "--rate", "20", "--size", "64x48", "--wait", *options
    )
    wait_until(lambda: len(messages) >= 5, what="five images")
    stamps = [m.header.stamp.sec * 10**9 + m.header.stamp.nanosec for m in messages]
    assert stamps[0] >= before_ns
    assert all((b - a) % 50_000_000 == 0 for a, b in itertools.pairwise(stamps))
    assert {m.header.frame_id for m in messages} == {"camera"}
    (info,) = graph.node.get_publishers_info_by_topic(topic)
    assert info.qos_profile.reliability.name == "BEST_EFFORT"
    if kind is Image:
        assert (messages[0].width, messages[0].height, messages[0].encoding) == (64, 48, "rgb8")
    child.interrupt()
    wait_until(lambda: child.exit_code() is not None, what="the end of the camera")
    assert child.exit_code() == 0
    assert "published" in child.output()


@pytest.fixture(scope="module")
def node(module_stage, endless_model, wait_until, graph):
    """Start a node that has seen something."""
    module_stage.node(
        model=endless_model(layers=8),
        memory__max_tokens=96,
        sampling__fps=20.0,
        question__max_new_tokens=8000,
    )
    module_stage.start("camera", "--rate", "20")
    wait_until(
        lambda: graph.query(question="mug ?", max_new_tokens=1).success, what="the first answer"
    )


def test_ask_prints_the_answer_and_a_footnote(node):
    done = run_cli("ask", "what color is the mug ?", "--max-new-tokens", "40")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "confidence" in done.stderr
    quiet = run_cli("ask", "what color is the mug ?", "--max-new-tokens", "2", "--quiet")
    assert quiet.stderr == ""


def test_ask_reports_a_refusal(node):
    done = run_cli("ask", "what color ?", "--camera", "rear")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "'rear'" in done.stderr


def test_interrupting_ask_cancels_the_question(graph, node, stage, wait_until):
    child = stage.start("ask", "what color is the mug ?", "--timeout", "300")
    wait_until(lambda: child.output().strip(), what="the first words")
    child.interrupt()
    wait_until(lambda: child.exit_code() is not None, what="the end of ask")
    assert child.exit_code() == 1
    assert "cancelled after" in child.output()
    assert graph.query(question="mug ?", max_new_tokens=1).success


def test_a_source_knows_what_it_is():
    assert "RoomWorld" in open_source("roomworld", tour_s=5.0).name
