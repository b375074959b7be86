"""A model that is slower than every wait: two threads must never share one memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import rclpy
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter

from infinipot_ros.core import Frame, StreamEngine
from infinipot_ros.ros import node as node_module
from infinipot_ros.ros.node import InfinipotNode

WAIT = 90.0
FAILURE, SUCCESS = TransitionCallbackReturn.FAILURE, TransitionCallbackReturn.SUCCESS


@pytest.fixture
def node(ros_environment, tiny_model):
    context = rclpy.Context()
    rclpy.init(context=context)
    values = {"autostart": False, "model": str(tiny_model()), "memory.max_tokens": 96}
    node = InfinipotNode(
        context=context,
        parameter_overrides=[Parameter(name, value=value) for name, value in values.items()],
    )
    yield node
    node.close()
    rclpy.shutdown(context=context)


def test_a_block_that_outlasts_deactivation(node, monkeypatch):
    monkeypatch.setattr(node_module, "STOP_WAIT_S", 0.05)
    entered, go_on, inside = threading.Event(), threading.Event(), []
    observe = StreamEngine.observe

    def slow(engine, *args):
        inside.append(threading.get_ident())
        entered.set()
        assert go_on.wait(WAIT)
        observe(engine, *args)

    monkeypatch.setattr(StreamEngine, "observe", slow)
    assert node.trigger_configure() == SUCCESS
    assert node.trigger_activate() == SUCCESS
    worker = node.worker()
    for number in range(8):
        assert worker.accept("camera", number * 10**9)
        worker.submit(Frame(np.zeros((56, 84, 3), np.uint8), number * 10**9, "camera"))
    assert entered.wait(WAIT)
    assert node.trigger_deactivate() == SUCCESS

    assert node.trigger_activate() == FAILURE  # not a second thread in the same memory
    assert node.trigger_cleanup() == FAILURE  # nor a model taken from under the first
    assert node.state == "inactive"
    go_on.set()
    assert worker.join(WAIT)
    assert node.trigger_activate() == SUCCESS
    assert node.worker().status("camera").memory.blocks == 1
    assert len(set(inside)) == 1
    assert node.trigger_deactivate() == SUCCESS
    assert node.trigger_cleanup() == SUCCESS
