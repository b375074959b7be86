"""The managed lifecycle, seen through its services, and refusals of what cannot work."""

from __future__ import annotations

import sys

import pytest
from rcl_interfaces.srv import GetParameters
from std_srvs.srv import Trigger

from infinipot_ros.msg import MemoryStatus

QUESTION = "what color is the mug ?"


@pytest.fixture(scope="module")
def node(module_stage, tiny_model):
    """Start a node that waits for its transitions."""
    return module_stage.node(
        autostart="false",
        model=tiny_model(),
        memory__max_tokens=96,
        sampling__fps=20.0,
        status__period_s=0.1,
    )


def test_a_whole_life(graph, node, module_stage, wait_until):
    statuses = graph.collect(MemoryStatus, "/infinipot/status")
    assert graph.state() == "unconfigured"
    answer = graph.query(question=QUESTION)
    assert not answer.success
    assert "unconfigured" in answer.message
    assert not graph.call(Trigger, "/infinipot/reset").success

    assert graph.change_state("configure")
    assert graph.state() == "inactive"
    assert "inactive" in graph.query(question=QUESTION).message

    activated = graph.change_state_async("activate")
    seen = set()
    while "active" not in seen:  # it answers while it loads the model
        seen.add(graph.state())
        assert "activating" in seen or "inactive" in seen
    assert "activating" in seen
    assert activated().success
    module_stage.start("camera", "--rate", "20")
    wait_until(lambda: statuses and statuses[-1].blocks >= 2, what="two blocks")
    assert graph.query(question=QUESTION, max_new_tokens=2).success

    assert graph.change_state("deactivate")
    assert graph.state() == "inactive"
    assert "inactive" in graph.query(question=QUESTION).message
    wait_until(lambda: graph.node.count_subscribers("/image") == 0, what="no subscription")

    kept = statuses[-1].blocks
    statuses.clear()
    assert graph.change_state("activate")
    wait_until(lambda: statuses, what="a status after the second activation")
    assert statuses[0].blocks >= kept  # the memory outlives a deactivation

    assert graph.change_state("deactivate")
    assert graph.change_state("cleanup")
    assert graph.state() == "unconfigured"

    # After a cleanup the memory is a new one, with the parameters as they are now.
    assert graph.set_parameter("memory.max_tokens", 192).successful
    assert graph.change_state("configure")
    statuses.clear()
    assert graph.change_state("activate")
    wait_until(lambda: statuses, what="a status after the third activation")
    assert statuses[0].tokens_cap == 192
    assert statuses[0].compressions == 0
    assert graph.change_state("deactivate")
    assert graph.change_state("cleanup")


@pytest.mark.parametrize(
    "parameter, value, words",
    [
        ("memory.policy", "keep_it_all", ["keep_it_all", "infinipot_v", "sliding_window"]),
        ("memory.policy_params", ["recent_ratio=7"], ["recent_ratio", "7"]),
        ("memory.policy_params", ["tar_ratio"], ["tar_ratio", "name=value"]),
        ("image_topics", ["a", "a"], ["image_topics", "twice"]),
        ("cameras", ["left", "right"], ["cameras", "2 names", "image_topics"]),
        ("image_topics", ["no topic!"], ["image_topics", "no topic!"]),
    ],
)
def test_configure_refuses_and_says_why(graph, node, wait_until, parameter, value, words):
    before = len(node.output())
    kept = graph.call(
        GetParameters, "/infinipot/get_parameters", GetParameters.Request(names=[parameter])
    ).values[0]
    old = kept.string_value or list(kept.string_array_value)
    assert graph.set_parameter(parameter, value).successful
    try:
        assert not graph.change_state("configure")
        assert graph.state() == "unconfigured"
        wait_until(
            lambda: all(word in node.output()[before:] for word in words),
            what=f"a line with {words}",
        )
    finally:
        assert graph.set_parameter(parameter, old).successful


@pytest.mark.parametrize(
    "parameter, value, words",
    [
        ("model", "/no/such/folder", ["/no/such/folder"]),
        ("memory.max_tokens", 12, ["max_tokens", "12", "two blocks"]),
    ],
)
def test_activate_refuses_and_the_node_lives_on(graph, node, wait_until, parameter, value, words):
    kept = graph.call(
        GetParameters, "/infinipot/get_parameters", GetParameters.Request(names=[parameter])
    ).values[0]
    before = len(node.output())
    assert graph.set_parameter(parameter, value).successful
    try:
        assert graph.change_state("configure")
        assert not graph.change_state("activate")
        assert graph.state() == "inactive"
        wait_until(
            lambda: all(word in node.output()[before:] for word in words),
            what=f"a line with {words}",
        )
    finally:
        assert graph.change_state("cleanup")
        old = kept.string_value or kept.integer_value
        assert graph.set_parameter(parameter, old).successful


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("memory.max_tokens", "-5", ["memory.max_tokens", "-5"]),
        ("memory.max_tokens", "many", ["memory.max_tokens", "many", "integer"]),
        ("memory.retain_ratio", "1.5", ["memory.retain_ratio", "1.5", "(0.0, 1.0)"]),
        ("dtype", "int4", ["dtype", "int4", "bfloat16"]),
    ],
)
def test_a_value_that_is_not_allowed_ends_the_process_with_a_line(
    stage, wait_until, name, value, words
):
    child = stage.node(**{name.replace(".", "__"): value})
    wait_until(lambda: child.exit_code() is not None, what="the end of the process")
    assert child.exit_code() == 2
    last = child.output().strip().splitlines()[-1]
    assert all(word in last for word in words), last


def test_arguments_that_are_not_ros_arguments_end_the_process_with_a_line(stage, wait_until):
    child = stage.start("node", "--model", "roomworld")
    wait_until(lambda: child.exit_code() is not None, what="the end of the process")
    assert child.exit_code() == 2
    assert "--model roomworld" in child.output()
    assert "--ros-args -p" in child.output()


def test_a_missing_library_is_named_with_the_interpreter_that_lacks_it(
    stage, tmp_path, monkeypatch, wait_until
):
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = stage.node()
    wait_until(lambda: child.exit_code() is not None, what="the end of the process")
    assert child.exit_code() == 2
    assert "No module named 'torch'" in child.output()
    assert sys.executable in child.output()


def test_an_integer_is_accepted_for_a_float(graph, stage, tiny_model, wait_until):
    child = stage.node(
        remap=["__node:=whole_numbers"],
        autostart="false",
        memory__max_token=7,
        sampling__fps=2,
        model=tiny_model(),
    )
    assert graph.state("/whole_numbers") == "unconfigured"
    assert graph.change_state("configure", "/whole_numbers"), child.output()
    assert "'memory.max_token' is unknown" in child.output()
    assert "did you mean 'memory.max_tokens'?" in child.output()
