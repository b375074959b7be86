"""`infinipot ask`: put a question to a running node and print the answer while it is written."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from infinipot_ros.ros.dds import use_image_profile
from infinipot_ros.ros.stopping import StopRequest, end

if TYPE_CHECKING:
    from rclpy.node import Node

CONNECT_S = 5.0
"""How long to look for the node, seconds."""

_POLL_S = 0.02
_UINT32_MAX = 2**32 - 1
_CANCEL_S = 1.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("question", help="what to ask, in quotes")
    parser.add_argument("--camera", default="", help="which camera's memory (default: the first)")
    parser.add_argument(
        "--conversation",
        metavar="ID",
        default="",
        help="follow up on the questions asked before with this ID, a word of your choice",
    )
    parser.add_argument("--node", default="infinipot", help="name of the node (%(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=0.0, help="time limit in seconds (default: the node's)"
    )
    parser.add_argument(
        "--max-new-tokens", type=_count, default=0, help="longest answer (default: the node's)"
    )
    parser.add_argument("--quiet", action="store_true", help="print the answer only")
    parser.epilog = (
        "Ctrl-C cancels the question. Exit code 0: answered; 1: refused, failed or cancelled."
    )


def run(args: argparse.Namespace) -> int:
    """Ask, stream the answer to stdout, and return the exit code."""
    stop = StopRequest(code=1)
    stop.install()
    use_image_profile()

    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=args.ros_args, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("infinipot_ask")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinner = threading.Thread(target=_spin, args=(executor,), daemon=True)
    spinner.start()
    stop.arm()
    try:
        code = _ask(node, args, stop)
    finally:
        executor.shutdown(0.5)
        spinner.join(1.0)
        node.destroy_node()
        rclpy.try_shutdown()
    return end(code)


def _ask(node: Node, args: argparse.Namespace, stop: StopRequest) -> int:
    from rclpy.action import ActionClient

    from infinipot_ros.action import Ask

    printer = _Printer()
    client: Any = ActionClient(node, Ask, f"{args.node}/ask")
    if not _until(client.server_is_ready, stop, CONNECT_S):
        if not stop.requested():
            print(_nobody(node, args.node), file=sys.stderr)
        return 1
    goal = Ask.Goal(
        question=args.question,
        camera=args.camera,
        conversation_id=args.conversation,
        max_new_tokens=args.max_new_tokens,
        timeout_s=args.timeout,
    )
    sent = client.send_goal_async(goal, lambda item: printer.show(item.feedback.partial))
    # Ctrl-C does not end this wait: only an accepted goal can be cancelled.
    if not _until(sent.done, None, CONNECT_S) or not sent.result().accepted:
        print("infinipot ask: the node did not take the question", file=sys.stderr)
        return 1
    handle = sent.result()
    finished = handle.get_result_async()
    if not _until_result(client, finished, stop):
        if not stop.requested():
            printer.finish("")
            print("infinipot ask: the node went away", file=sys.stderr)
            return 1
        handle.cancel_goal_async()
        _until(finished.done, None, _CANCEL_S)
    if not finished.done():
        return 1
    result = finished.result().result
    if not result.success:
        printer.finish(result.answer)
        print(f"infinipot ask: {result.message}", file=sys.stderr)
        return 1
    printer.finish(result.answer)
    if printer.broken:
        return 1
    if not args.quiet:
        print(_footnote(result), file=sys.stderr)
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > _UINT32_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; give 0 (the node's) or more")
    return int(text)


class _Printer:
    """Write an answer that grows, once each piece."""

    def __init__(self) -> None:
        self.broken = False  # nobody reads any more
        self._shown = ""
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Write what is new in the text so far."""
        with self._lock:
            # A late piece of feedback may be shorter than what is shown.
            if text.startswith(self._shown):
                self._write(text[len(self._shown) :])
                self._shown = text

    def finish(self, text: str) -> None:
        """Write the rest and end the line."""
        self.show(text)
        with self._lock:
            if text and self._shown != text:
                self._write(f"\n{text}")
            if text or self._shown:
                self._write("\n")
            self._shown = "\0"  # feedback that is still on its way is not written any more

    def _write(self, text: str) -> None:
        """Write to stdout; called from the thread that spins, which must not die of it."""
        if self.broken:
            return
        try:
            print(text, end="", flush=True)
        except OSError:
            self.broken = True


def _until(condition: Any, stop: StopRequest | None, timeout_s: float | None) -> bool:
    """Wait for a condition; False when time is up or the process is told to stop."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while not condition():
        if deadline is not None and time.monotonic() > deadline:
            return False
        if stop is None:
            time.sleep(_POLL_S)
        elif stop.wait(_POLL_S):
            return False
    return True


def _until_result(client: Any, finished: Any, stop: StopRequest) -> bool:
    """Wait for the result as long as the node is there and nobody stops us."""
    seen = time.monotonic()
    while time.monotonic() - seen < CONNECT_S:
        if _until(finished.done, stop, 1.0):
            return True
        if stop.requested():
            return False
        if client.server_is_ready():
            seen = time.monotonic()
    return False


def _nobody(node: Node, name: str) -> str:
    from rclpy.action import get_action_names_and_types

    # The list has clients as well: this command's own is no node to ask.
    own = node.resolve_topic_name(f"{name}/ask")
    asked = sorted(
        action.removesuffix("/ask")
        for action, kinds in get_action_names_and_types(node)
        if "infinipot_ros/action/Ask" in kinds and action != own
    )
    text = f"infinipot ask: no node {name!r} answers. "
    if asked:
        return text + f"There is {', '.join(asked)}: name it with --node"
    return text + "Start one with `infinipot node` (same ROS_DOMAIN_ID?)"


def _footnote(result: Any) -> str:
    stamp = result.stamp.sec + result.stamp.nanosec * 1e-9
    return (
        f"[confidence {result.confidence:.2f}, {result.latency_s:.2f} s, covers frames until "
        f"{time.strftime('%H:%M:%S', time.localtime(stamp))}, {result.tokens_retained} tokens "
        "in memory]"
    )


def _spin(executor: Any) -> None:
    from rclpy.executors import ExternalShutdownException, ShutdownException

    with contextlib.suppress(ExternalShutdownException, ShutdownException):
        executor.spin()
