"""The node's process: signals first, then ROS and torch, then spin until told to stop."""

from __future__ import annotations

import functools
import gc
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infinipot_ros.ros.dds import use_image_profile
from infinipot_ros.ros.stopping import StopRequest, end_now

if TYPE_CHECKING:
    from rclpy.executors import Executor
    from rclpy.impl.rcutils_logger import RcutilsLogger

    from infinipot_ros.ros.node import InfinipotNode

CONFIG_EXIT = 2
"""Exit code for a command line or parameters that cannot work; restarting does not help."""

_EXECUTOR_WAIT_S = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT, SIGTERM or the end of its ROS context.

    Args:
        argv: arguments after the program's name, `--ros-args ...`; None takes `sys.argv`.

    Returns:
        0 after a stop that was asked for, `CONFIG_EXIT` if it could not start.
    """
    stop = StopRequest()
    stop.install()
    arguments = list(sys.argv[1:] if argv is None else argv)
    use_image_profile()
    # Idle OpenMP threads must not spin on cores that the robot's other processes need.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Progress bars of a model load are noise in a log; the node says itself what it loads.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

    import rclpy
    from rclpy.signals import SignalHandlerOptions
    from rclpy.utilities import remove_ros_args

    try:
        stray = [argument for argument in _before_ros_args(arguments) if ":=" in argument]
        stray = stray or remove_ros_args(["infinipot", *arguments])[1:]
    except Exception as error:  # rcl has a type of its own for each kind of bad argument
        return _refuse(error)
    if stray:
        print(
            f"infinipot node: {' '.join(stray)!r} is no ROS argument; set parameters with "
            "--ros-args -p NAME:=VALUE, for example --ros-args -p model:=roomworld",
            file=sys.stderr,
        )
        return CONFIG_EXIT
    try:
        # Importing torch holds the interpreter's lock for long stretches: it comes before the node
        # is on the graph, where callers expect its services to answer.
        from infinipot_ros.core.errors import ConfigError
        from infinipot_ros.ros.node import InfinipotNode
    except ModuleNotFoundError as error:
        print(
            f"infinipot: {error}. This interpreter, {sys.executable}, lacks it: install it there "
            "or use the interpreter of the environment that has it",
            file=sys.stderr,
        )
        return CONFIG_EXIT
    try:
        rclpy.init(args=["infinipot", *arguments], signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:
        return _refuse(error)
    try:
        _serve(InfinipotNode(), stop)
    except ConfigError as error:
        return _refuse(error)
    finally:
        # The participant leaves the graph when the last handle on the node is gone.
        gc.unfreeze()
        gc.collect()
        rclpy.try_shutdown()
    # The interpreter would take torch apart for seconds now; nothing that matters is left.
    end_now(0)


def _before_ros_args(arguments: Sequence[str]) -> Sequence[str]:
    """Return what stands before `--ros-args`: there, rcl passes over `name:=value` in silence."""
    marks = [i for i, argument in enumerate(arguments) if argument == "--ros-args"]
    return arguments[: marks[0]] if marks else arguments


def _refuse(error: Exception) -> int:
    """Say in one line why the node cannot start; return the exit code."""
    text = str(error)
    # rcl adds where in its sources it noticed.
    print(f"infinipot: {text.partition(', at /')[0]}", file=sys.stderr)
    return CONFIG_EXIT


def _serve(node: InfinipotNode, stop: StopRequest) -> None:
    """Spin the node until it is told to stop, then close it."""
    import rclpy

    from infinipot_ros.ros.executor import PoolExecutor

    logger = node.get_logger()
    handler = _RosLog(logger)
    package = logging.getLogger("infinipot_ros")
    package.addHandler(handler)
    package.propagate = False
    executor = PoolExecutor(node.threads, functools.partial(_report, logger))
    executor.add_node(node)
    rclpy.get_default_context().on_shutdown(stop.request)
    stop.arm()
    threads = [
        threading.Thread(target=_spin, args=(executor, logger), name="infinipot-spin", daemon=True),
        threading.Thread(target=node.autostart, name="infinipot-autostart", daemon=True),
    ]
    for thread in threads:
        thread.start()
    stop.wait()

    node.wind_down()
    executor.shutdown(_EXECUTOR_WAIT_S)
    for thread in threads:
        thread.join(_EXECUTOR_WAIT_S)
    node.close()
    package.removeHandler(handler)


def _spin(executor: Executor, logger: RcutilsLogger) -> None:
    """Spin until the end, also past what the middleware's waiting may raise."""
    while executor.context.ok():
        try:
            executor.spin()
            return
        except Exception as error:
            if executor.context.ok():
                _report(logger, error)


def _report(logger: RcutilsLogger, error: Exception) -> None:
    logger.error(f"a callback failed: {type(error).__name__}: {error}")


class _RosLog(logging.Handler):
    """Send the package's own log records to the node's logger."""

    def __init__(self, logger: RcutilsLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        message = self.format(record)
        if record.levelno >= logging.ERROR:
            self._logger.error(message)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(message)
        else:
            self._logger.info(message)
