"""The two doors for questions, service `~/query` and action `~/ask`: same fields, same refusals.

A question that waits holds one executor thread. That is bounded, since the worker's queue is: one
question more is refused at once. The node sizes its executor accordingly (`InfinipotNode.threads`).
Awaiting a future instead would make rclpy poll every waiting coroutine on every wake-up.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy

from infinipot_ros.action import Ask
from infinipot_ros.core import Answer, InfinipotError, QuestionError, Ticket, Worker
from infinipot_ros.msg import Evidence
from infinipot_ros.ros.conversions import ns_to_stamp
from infinipot_ros.ros.settings import in_parameter_names
from infinipot_ros.srv import Query

RCLError = rclpy_implementation.RCLError

CALL_DEPTH = 1000
"""Calls that the middleware keeps until the node takes them."""

CANCEL_POLL_S = 0.02
"""How often a waiting action looks whether it was cancelled, seconds."""

DEADLINE_POLL_S = 0.25
"""How often a waiting service call looks at its time limit, seconds."""

MAX_TIMEOUT_S = 24 * 3600.0
"""Longest time limit of a question, seconds."""


class Host(Protocol):
    """What the doors need to know of the node."""

    def worker(self) -> Worker:
        """Return the running worker; raises InfinipotError that says why there is none."""
        ...

    def default_timeout_s(self) -> float:
        """Return the time limit of a question that sets none, seconds."""
        ...


class QuestionDoors:
    """Serve `~/query` and `~/ask`.

    Args:
        node: the node to serve on; its lifetime is the doors' lifetime.
        host: where questions go.
    """

    def __init__(self, node: Node, host: Host) -> None:
        self._node = node
        self._host = host
        self._lock = threading.Lock()
        self._serving = 0
        self._served_at = 0.0
        group = ReentrantCallbackGroup()
        # The default keeps ten requests: of twenty that arrive together ten would be lost without
        # a word. What arrives is either answered or refused, so all of it is taken in.
        qos = QoSProfile(depth=CALL_DEPTH, reliability=ReliabilityPolicy.RELIABLE)
        self._service = node.create_service(
            Query, "~/query", self._on_query, qos_profile=qos, callback_group=group
        )
        self._action = ActionServer(
            node,
            Ask,
            "~/ask",
            self._on_ask,
            callback_group=group,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
            goal_service_qos_profile=qos,
            result_service_qos_profile=qos,
            cancel_service_qos_profile=qos,
        )

    def drain(self, timeout_s: float) -> None:
        """Wait until every question that was being served has its reply.

        The worker has stopped: they end at once, but their replies are sent by other threads.

        Args:
            timeout_s: longest wait, seconds.
        """
        deadline = time.monotonic() + timeout_s
        while self._serving and time.monotonic() < deadline:
            time.sleep(CANCEL_POLL_S)
        if self._served_at + CANCEL_POLL_S > time.monotonic():
            time.sleep(CANCEL_POLL_S)  # the last reply is on its way from the callback's return

    def close(self) -> None:
        """Take both off the graph."""
        self._action.destroy()
        self._node.destroy_service(self._service)

    def _on_query(self, request: Query.Request, response: Query.Response) -> Query.Response:
        with self._counted():
            self._serve(request, response, on_text=None, cancelled=None)
        return response

    def _on_ask(self, goal: ServerGoalHandle[Any, Any, Any]) -> Ask.Result:
        with self._counted():
            return self._answer_goal(goal)

    def _answer_goal(self, goal: ServerGoalHandle[Any, Any, Any]) -> Ask.Result:
        result = Ask.Result()
        reason = self._serve(
            goal.request,
            result,
            on_text=lambda text: goal.publish_feedback(Ask.Feedback(partial=text)),
            cancelled=lambda: goal.is_cancel_requested,
        )
        try:
            if reason == "cancelled" and goal.is_cancel_requested:
                goal.canceled()
            elif result.success:
                goal.succeed()
            else:
                goal.abort()
        except RCLError as error:  # the node is going away
            self._node.get_logger().debug(f"a goal could not be ended: {error}")
        return result

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._serving += 1
        try:
            yield
        finally:
            with self._lock:
                self._serving -= 1
                self._served_at = time.monotonic()

    def _serve(
        self,
        request: Query.Request | Ask.Goal,
        out: Query.Response | Ask.Result,
        on_text: Callable[[str], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> str:
        """Ask, wait and fill in the result; return the finish reason, "refused" if none."""
        try:
            timeout_s = float(request.timeout_s)
            if not 0.0 <= timeout_s <= MAX_TIMEOUT_S:
                raise QuestionError(
                    f"timeout_s is {timeout_s}; it must lie in [0 (default), {MAX_TIMEOUT_S:g}] s"
                )
            timeout_s = timeout_s or self._host.default_timeout_s()
            ticket = self._host.worker().ask(
                request.question,
                camera=request.camera,
                conversation_id=request.conversation_id,
                max_new_tokens=request.max_new_tokens,
                timeout_s=timeout_s,
                on_text=on_text,
            )
            answer = _wait(ticket, timeout_s, cancelled)
        except InfinipotError as error:
            out.success, out.message = False, in_parameter_names(str(error))
            return "refused"
        except Exception as error:  # a fault of ours must reach the caller, not kill the executor
            self._node.get_logger().error(f"a question failed: {type(error).__name__}: {error}")
            out.success, out.message = False, f"internal error: {type(error).__name__}: {error}"
            return "refused"
        _fill(out, answer, timeout_s)
        return answer.finish_reason


def _wait(ticket: Ticket, timeout_s: float, cancelled: Callable[[], bool] | None) -> Answer:
    """Wait for the answer, passing on a cancel and the end of the time limit."""
    deadline = time.monotonic() + timeout_s
    poll_s = DEADLINE_POLL_S if cancelled is None else CANCEL_POLL_S
    while True:
        try:
            return ticket.result(poll_s)
        except concurrent.futures.TimeoutError:
            if cancelled is not None and cancelled():
                ticket.cancel()
            # The worker ends a question between two tokens; one that still waits behind a long
            # block is ended here.
            elif time.monotonic() > deadline:
                ticket.end_if_dead()


def _fill(out: Query.Response | Ask.Result, answer: Answer, timeout_s: float) -> None:
    out.success = answer.finish_reason in ("stop", "length")
    if answer.finish_reason == "cancelled":
        out.message = f"cancelled after {answer.n_tokens} tokens"
    elif answer.finish_reason == "timeout":
        out.message = (
            f"the time limit of {timeout_s:g} s passed after {answer.n_tokens} tokens; "
            "raise timeout_s, or ask when the node is less busy"
        )
    out.answer = answer.text
    out.confidence = answer.confidence
    out.stamp = ns_to_stamp(answer.stamp_ns)
    out.evidence = [
        Evidence(
            camera=item.camera,
            start=ns_to_stamp(item.start_ns),
            end=ns_to_stamp(item.end_ns),
            weight=item.weight,
        )
        for item in answer.evidence
    ]
    out.tokens_retained = answer.tokens_retained
    out.latency_s = answer.latency_s
