"""PoolExecutor: callbacks run once, side by side, and a fault of one leaves the others alone."""

from __future__ import annotations

import contextlib
import threading

import pytest
import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

from infinipot_ros.ros.executor import PoolExecutor

CALLS = 40


@pytest.fixture
def spun(ros_environment):
    """Return a node that is spun by a PoolExecutor, and the list of its faults."""
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("pooled", context=context)
    faults = []
    executor = PoolExecutor(8, faults.append, context=context)
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin, daemon=True)
    thread.start()
    yield node, faults
    executor.shutdown(1.0)
    thread.join(5.0)
    assert not thread.is_alive()
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def test_calls_run_side_by_side_and_each_once(spun, wait_until):
    node, faults = spun
    release, begun = threading.Event(), []

    def hold(request, response):
        begun.append(threading.get_ident())
        release.wait(60.0)
        response.success = True
        return response

    group = ReentrantCallbackGroup()
    node.create_service(Trigger, "hold", hold, callback_group=group)
    client = node.create_client(Trigger, "hold", callback_group=group)
    wait_until(client.service_is_ready, what="the service")
    first = [client.call_async(Trigger.Request()) for _ in range(4)]
    wait_until(lambda: len(begun) == 4, what="four calls at once")
    assert len(set(begun)) == 4
    release.set()
    wait_until(lambda: all(future.done() for future in first), what="four responses")
    rest = []
    for _ in range(CALLS):
        rest.append(client.call_async(Trigger.Request()))
        wait_until(rest[-1].done, what="a response")
    assert len(begun) == 4 + CALLS
    assert all(future.result().success for future in first + rest)
    assert faults == []


def test_a_callback_that_fails_is_told_and_the_next_one_runs(spun, wait_until):
    node, faults = spun
    ran = []

    def fail():
        ran.append(None)
        raise ValueError("no")

    node.create_timer(0.02, fail, callback_group=ReentrantCallbackGroup())
    wait_until(lambda: len(ran) >= 3, what="three runs")
    wait_until(lambda: len(faults) >= 3, what="three faults")
    assert {str(fault) for fault in faults} == {"no"}


def test_a_callback_that_is_running_does_not_hold_up_the_end(spun, wait_until):
    node, _ = spun
    entered, release = threading.Event(), threading.Event()

    def hold():
        entered.set()
        release.wait(60.0)

    node.create_timer(0.02, hold)
    wait_until(entered.is_set, what="the callback")
    with contextlib.suppress(Exception):
        node.executor.shutdown(0.2)
    release.set()
