"""What planners and shells do: calls that arrive together, terminals that close, pipes that end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rclpy.qos import QoSProfile

from infinipot_ros.srv import Query

CLI = (sys.executable, "-m", "infinipot_ros.cli")


@pytest.fixture(scope="module")
def node(module_stage, endless_model, wait_until, graph):
    """Start a node with frames in its memory."""
    child = module_stage.node(model=endless_model(), memory__max_tokens=96, sampling__fps=20.0)
    module_stage.start("camera", "--rate", "20")
    wait_until(lambda: graph.query(question="what is it ?", max_new_tokens=1).success)
    return child


def test_calls_that_arrive_together_are_all_answered_or_refused(graph, node, wait_until):
    # Every client hears the replies to all: one that keeps ten could lose its own among 25.
    qos = QoSProfile(depth=100)
    clients = [
        graph.node.create_client(Query, "/infinipot/query", qos_profile=qos) for _ in range(25)
    ]
    for client in clients:
        wait_until(client.service_is_ready)
    request = Query.Request(question="what color is the mug ?", max_new_tokens=2)
    replies = [client.call_async(request) for client in clients]
    wait_until(lambda: all(reply.done() for reply in replies), what="25 replies")
    outcomes = [reply.result() for reply in replies]
    assert any(outcome.success for outcome in outcomes)
    assert all(
        outcome.success or "questions are waiting" in outcome.message for outcome in outcomes
    )
    for client in clients:
        graph.node.destroy_client(client)


def test_asking_into_a_closed_pipe_ends(node, ros_environment):
    with Path("/dev/full").open("w") as full:
        command = [*CLI, "ask", "what color is the mug ?", "--max-new-tokens", "3"]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=90, check=False
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def _children(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if parent == str(pid):
            found.append(int(path.parent.name))
    return found


def _alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL], ids=lambda n: n.name)
def test_a_demo_whose_terminal_closes_leaves_no_process(
    ros_environment, tiny_model, wait_until, number
):
    command = [*CLI, "demo", "--model", str(tiny_model()), "--max-tokens", "96"]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        children = wait_until(lambda: (c := _children(demo.pid))[1:] and c, what="two children")
        demo.send_signal(number)
        demo.wait(90)
        wait_until(lambda: not any(map(_alive, children)), what="the end of the children")
    finally:
        demo.kill()
        demo.wait()
