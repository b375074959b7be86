"""What the ROS benches share: a domain of their own, processes, and a client of the graph."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infinipot_ros.ros.children import Child
from infinipot_ros.ros.dds import use_image_profile

NODE = "/infinipot"
WAIT_S = 120.0
RESEND_S = 30.0


def until(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Return the condition's first true value; raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.002)
    return value


class Client:
    """A node that calls services and listens, with its own spinning thread."""

    def __init__(self) -> None:
        import rclpy
        from rclpy.signals import SignalHandlerOptions

        from infinipot_ros.ros.executor import PoolExecutor

        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node("bench")
        self._executor = PoolExecutor(6, print)
        self._executor.add_node(self.node)
        threading.Thread(target=self._spin, daemon=True).start()
        self._services: dict[str, Any] = {}

    def call(
        self,
        kind: Any,
        name: str,
        request: Any,
        timeout_s: float = WAIT_S,
        resend_s: float = RESEND_S,
    ) -> Any:
        """Call a service and wait for its response; send it again after `resend_s` seconds."""
        from rclpy.callback_groups import ReentrantCallbackGroup

        if name not in self._services:
            client = self.node.create_client(kind, name, callback_group=ReentrantCallbackGroup())
            self._services[name] = client
            until(client.service_is_ready, f"service {name}")
        deadline = time.monotonic() + timeout_s
        while True:
            future = self._services[name].call_async(request)
            left_s = deadline - time.monotonic()
            if left_s <= resend_s:
                until(future.done, f"response of {name}", left_s)
                return future.result()
            # ROS 2 drops the response to a client that the server has not discovered whole.
            with contextlib.suppress(TimeoutError):
                until(future.done, f"response of {name}", resend_s)
                return future.result()

    def statuses(self) -> list[Any]:
        """Return the list that fills with the node's status messages."""
        from infinipot_ros.msg import MemoryStatus

        messages: list[Any] = []
        self.node.create_subscription(MemoryStatus, f"{NODE}/status", messages.append, 50)
        return messages

    def close(self) -> None:
        """Leave the graph."""
        import rclpy

        self._executor.shutdown(1.0)
        self.node.destroy_node()
        rclpy.try_shutdown()

    def _spin(self) -> None:
        from rclpy.executors import ExternalShutdownException

        with contextlib.suppress(ExternalShutdownException):
            self._executor.spin()


@contextlib.contextmanager
def stage() -> Iterator[tuple[Client, Callable[..., Child]]]:
    """Yield a client and a function that starts `infinipot ARGUMENTS...`; end all afterwards."""
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    use_image_profile()
    children: list[Child] = []
    with TemporaryDirectory(prefix="infinipot-bench-") as folder:
        os.environ["ROS_LOG_DIR"] = folder

        def start(*arguments: object) -> Child:
            log = Path(folder) / f"{len(children)}.log"
            child = Child(str(arguments[0]), [str(item) for item in arguments], log)
            children.append(child)
            return child

        client = Client()
        try:
            yield client, start
        except TimeoutError:
            for child in children:
                print(f"---- {child.name}\n{child.output()}")
            raise
        finally:
            for child in children:
                child.interrupt()
            for child in children:
                child.stop()
            client.close()


def node_arguments(**parameters: object) -> list[str]:
    """Return the arguments of `infinipot` for a node; `__` stands for the dots of names."""
    out = ["node", "--ros-args"]
    for name, value in parameters.items():
        out += ["-p", f"{name.replace('__', '.')}:={value}"]
    return out


def promises_kept(statuses: list[Any]) -> bool:
    """Say whether every status accounts for its frames and stays below its caps."""
    return all(
        m.frames_sampled == m.frames_encoded + m.frames_dropped + m.frames_pending
        and (not m.tokens_cap or m.tokens_retained <= m.tokens_cap)
        and (not m.bytes_cap or m.bytes_used <= m.bytes_cap)
        for m in statuses
    )
