"""The demo's own node: listens to `~/status` and asks through `~/ask`."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import rclpy
from rclpy.action import ActionClient
from rclpy.executors import (
    ExternalShutdownException,
    ShutdownException,
    SingleThreadedExecutor,
)
from rclpy.signals import SignalHandlerOptions

from infinipot_ros.action import Ask
from infinipot_ros.msg import MemoryStatus
from infinipot_ros.ros.demo_history import Reading
from infinipot_ros.ros.stopping import StopRequest

ASK_WAIT_S = 45.0
"""How long to wait for an answer, discovery included, seconds."""

_POLL_S = 0.02
_NS = 1_000_000_000


class Observer:
    """Watch one node called `infinipot` and ask it questions.

    Args:
        ros_args: `--ros-args ...`, or nothing.
    """

    def __init__(self, ros_args: Sequence[str]) -> None:
        rclpy.init(args=list(ros_args), signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node("infinipot_demo")
        self._client: Any = ActionClient(self._node, Ask, "infinipot/ask")
        self._node.create_subscription(MemoryStatus, "infinipot/status", self._on_status, 10)
        self.status: MemoryStatus | None = None
        self.peak_tokens = 0
        self.peak_bytes = 0
        self._readings: list[Reading] = []
        self._recording = True
        self._broken: dict[str, None] = {}
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, name="demo-observer", daemon=True)
        self._thread.start()

    def ask(self, question: str, stop: StopRequest) -> Ask.Result | None:
        """Ask and wait; None if the node does not reply or the demo is to stop."""
        deadline = time.monotonic() + ASK_WAIT_S
        if not _until(self._client.server_is_ready, stop, deadline):
            return None
        sent = self._client.send_goal_async(Ask.Goal(question=question))
        if not _until(sent.done, stop, deadline) or not sent.result().accepted:
            return None
        finished = sent.result().get_result_async()
        if not _until(finished.done, stop, deadline):
            return None
        return finished.result().result

    def readings(self) -> list[Reading]:
        """Stop recording what the status messages say, and return it.

        Without an end the record would grow for as long as the demo stays up.
        """
        self._recording = False
        return list(self._readings)

    def broken_promises(self) -> list[str]:
        """Return every promise about the memory that some status message broke."""
        return list(self._broken)

    def close(self) -> None:
        """Leave the graph."""
        self._executor.shutdown(0.5)
        self._thread.join(1.0)
        self._node.destroy_node()
        rclpy.try_shutdown()

    def _on_status(self, status: MemoryStatus) -> None:
        self.peak_tokens = max(self.peak_tokens, status.tokens_retained)
        self.peak_bytes = max(self.peak_bytes, status.bytes_used)
        counted = status.frames_encoded + status.frames_dropped + status.frames_pending
        if status.frames_sampled != counted:
            self._broken["sampled frames got lost without being counted"] = None
        if status.tokens_cap and status.tokens_retained > status.tokens_cap:
            self._broken["the memory passed its cap on tokens"] = None
        if status.bytes_cap and status.bytes_used > status.bytes_cap:
            self._broken["the memory passed its cap on bytes"] = None
        if self._recording:
            self._readings.append(_reading(status))
        self.status = status

    def _spin(self) -> None:
        with contextlib.suppress(ExternalShutdownException, ShutdownException):
            self._executor.spin()


def _reading(status: MemoryStatus) -> Reading:
    stamp = status.header.stamp
    return Reading(
        stamp_ns=stamp.sec * _NS + stamp.nanosec,
        tokens=status.tokens_retained,
        cap=status.tokens_cap,
        frames=status.frames_encoded,
        blocks=status.blocks,
        compressions=status.compressions,
    )


def _until(condition: Any, stop: StopRequest, deadline: float) -> bool:
    while not condition():
        if time.monotonic() > deadline or stop.wait(_POLL_S):
            return False
    return True
