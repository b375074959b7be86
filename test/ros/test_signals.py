"""SIGINT and SIGTERM in every phase: a quick end, exit code 0, no traceback, off the graph."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from infinipot_ros.srv import Query

BAR_S = 3.0
SIGNALS = [signal.SIGINT, signal.SIGTERM]


def end_with(child, number, wait_until):
    """Send the signal; return the seconds that the end took."""
    started = time.monotonic()
    os.kill(child.pid, number)
    wait_until(lambda: child.exit_code() is not None, what="the end of the process")
    took_s = time.monotonic() - started
    assert child.exit_code() == 0, child.output()
    assert "Traceback" not in child.output(), child.output()
    return took_s


def is_importing(child):
    """Say whether the node's process has begun to load libraries, but is not on the graph yet."""
    maps = Path(f"/proc/{child.pid}/maps").read_text()
    return "_rclpy" in maps or "libtorch" in maps


@pytest.fixture(scope="module")
def took():
    """Collect how long each end took; told at the end, judged generously."""
    times = {}
    yield times
    print("\nseconds from signal to end:", {key: round(value, 2) for key, value in times.items()})


@pytest.mark.parametrize("number", SIGNALS)
def test_while_importing(stage, wait_until, took, number):
    child = stage.node(autostart="false")
    wait_until(lambda: is_importing(child), what="the import of libraries")
    took["importing", number.name] = end_with(child, number, wait_until)


@pytest.mark.parametrize("number", SIGNALS)
def test_while_the_model_loads(stage, wait_until, took, tiny_model, number):
    child = stage.node(model=tiny_model(), memory__max_tokens=96)
    wait_until(lambda: "loading model" in child.output(), what="the load of the model")
    took["loading", number.name] = end_with(child, number, wait_until)


def test_while_streaming(graph, stage, wait_until, took, tiny_model):
    child = stage.node(
        remap=["__node:=streaming"], model=tiny_model(), memory__max_tokens=96, sampling__fps=20.0
    )
    camera = stage.start("camera", "--rate", "30", "--size", "640x480")
    wait_until(lambda: "watching /image" in child.output(), what="a subscription")
    assert "/streaming" in dict(graph.node.get_service_names_and_types()).__repr__()
    took["streaming", "SIGINT"] = end_with(child, signal.SIGINT, wait_until)
    took["camera", "SIGTERM"] = end_with(camera, signal.SIGTERM, wait_until)
    # It says goodbye: peers need not wait for its lease to run out.
    wait_until(
        lambda: "streaming" not in graph.node.get_node_names(), timeout_s=10.0, what="off the graph"
    )


@pytest.mark.parametrize("number", SIGNALS)
def test_while_answering(graph, stage, wait_until, took, endless_model, number):
    name = f"/answering_{number.name.lower()}"
    child = stage.node(
        remap=[f"__node:={name[1:]}"],
        model=endless_model(layers=8),
        memory__max_tokens=96,
        sampling__fps=20.0,
        question__max_new_tokens=8000,
    )
    stage.start("camera", "--rate", "20")
    wait_until(
        lambda: graph.query(name, question="mug ?", max_new_tokens=1).success, what="an answer"
    )
    _, finished, texts = graph.ask(name, question="what color is the mug ?", timeout_s=300.0)
    wait_until(lambda: texts, what="the first token")
    waiting = graph.call_async(Query, f"{name}/query", Query.Request(question="mug ?"))
    took["answering", number.name] = end_with(child, number, wait_until)
    # Whoever asked is told, the one whose answer was being written and the one who waited.
    wait_until(finished.done, what="the action's result")
    assert "cancelled after" in finished.result().result.message
    assert re.search("stopp(ed|ing)", waiting().message)


def test_ends_took_no_longer_than_the_grace_allows(took):
    if not took:
        pytest.skip("run together with the tests above")
    # The bar is 3 s; a machine under other load gets twice that before it counts as a failure.
    assert max(took.values()) < 2 * BAR_S, took
