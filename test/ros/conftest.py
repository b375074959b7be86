"""A live ROS graph for tests: a domain of its own, processes over real DDS, a client node."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

if importlib.util.find_spec("rclpy") is None:
    collect_ignore_glob = ["test_*.py"]

WAIT = 90.0
"""Seconds to wait for something that takes a second; only a broken node takes so long."""

RESEND_S = 10.0
"""Seconds after which a service call is taken for lost in discovery."""


def wait_until(condition, timeout_s=WAIT, what="condition"):
    """Return the first true value of the condition."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.02)


@pytest.fixture(scope="session", name="wait_until")
def _wait_until():
    return wait_until


@pytest.fixture(scope="session")
def ros_environment(tmp_path_factory):
    """Give this process and its children a domain of their own on this host."""
    from infinipot_ros.ros.dds import use_image_profile

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
        patch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        patch.setenv("ROS_LOG_DIR", str(tmp_path_factory.mktemp("roslog")))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        use_image_profile()
        yield


@pytest.fixture(scope="session")
def endless_model(tiny_model, tmp_path_factory):
    """Return a maker of model folders that answer in words, as many as they may.

    The rows of all other tokens are zeroed, so that none of them has the largest logit.
    """
    from safetensors.torch import load_file, save_file
    from transformers import AutoTokenizer

    def make(**shape):
        source = tiny_model(**shape)
        folder = tmp_path_factory.mktemp("endless") / "model"
        shutil.copytree(source, folder)
        weights = load_file(folder / "model.safetensors")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        name = next(key for key in weights if key.endswith("embed_tokens.weight"))
        words = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
        kept = weights[name][words].clone()
        weights[name].zero_()
        weights[name][words] = kept
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return make


class Graph:
    """A client of the graph in this process: calls services, collects messages, asks actions."""

    def __init__(self):
        import rclpy
        from rclpy.executors import MultiThreadedExecutor
        from rclpy.signals import SignalHandlerOptions

        self.context = rclpy.Context()
        rclpy.init(context=self.context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node("tester", context=self.context)
        self._executor = MultiThreadedExecutor(4, context=self.context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()
        self._clients = {}

    def call(self, kind, name, request=None, timeout_s=WAIT):
        """Call a service that may be called twice, and return its response.

        A server that has not discovered the client's side yet drops its response, as ROS 2 does:
        whoever calls a service at first sight must be ready to call again.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            response = self.call_async(kind, name, request)
            left_s = deadline - time.monotonic()
            if left_s <= RESEND_S:
                return response(left_s)
            with contextlib.suppress(AssertionError):
                return response(RESEND_S)

    def call_async(self, kind, name, request=None):
        """Send a request; return a function that waits for the response."""
        from rclpy.callback_groups import ReentrantCallbackGroup

        if (kind, name) not in self._clients:
            client = self.node.create_client(kind, name, callback_group=ReentrantCallbackGroup())
            self._clients[kind, name] = client
        client = self._clients[kind, name]
        wait_until(client.service_is_ready, what=f"service {name}")
        future = client.call_async(kind.Request() if request is None else request)

        def result(timeout_s=WAIT):
            wait_until(future.done, timeout_s, f"response of {name}")
            return future.result()

        return result

    def collect(self, kind, topic, qos=10):
        """Subscribe; return the list that fills with messages."""
        messages = []
        self.node.create_subscription(kind, topic, messages.append, qos)
        return messages

    def publisher(self, kind, topic, *, reliable=False, depth=5):
        """Make a publisher as a camera driver does: best effort unless asked otherwise."""
        from rclpy.qos import QoSProfile, ReliabilityPolicy

        policy = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        return self.node.create_publisher(kind, topic, QoSProfile(depth=depth, reliability=policy))

    def ask(self, name, **goal):
        """Send an Ask goal; return its handle, result future and the texts of its feedback."""
        from rclpy.action import ActionClient

        from infinipot_ros.action import Ask

        client = self._clients.setdefault(name, ActionClient(self.node, Ask, f"{name}/ask"))
        wait_until(client.server_is_ready, what=f"action of {name}")
        texts = []
        sent = client.send_goal_async(
            Ask.Goal(**goal), lambda item: texts.append(item.feedback.partial)
        )
        wait_until(sent.done, what="goal response")
        handle = sent.result()
        assert handle.accepted
        return handle, handle.get_result_async(), texts

    def query(self, name="infinipot", **request):
        """Ask through the service."""
        from infinipot_ros.srv import Query

        return self.call(Query, f"{name}/query", Query.Request(**request))

    def state(self, name="infinipot"):
        """Return the label of a node's lifecycle state."""
        from lifecycle_msgs.srv import GetState

        return self.call(GetState, f"{name}/get_state").current_state.label

    def change_state(self, transition, name="infinipot"):
        """Request a transition by its label; return whether it succeeded."""
        return self.change_state_async(transition, name)().success

    def change_state_async(self, transition, name="infinipot"):
        """Request a transition; return a function that waits for the response."""
        from lifecycle_msgs.msg import Transition
        from lifecycle_msgs.srv import ChangeState

        request = ChangeState.Request(transition=Transition(label=transition))
        return self.call_async(ChangeState, f"{name}/change_state", request)

    def set_parameter(self, parameter, value, name="infinipot"):
        """Set a parameter; return the result with `successful` and `reason`."""
        from rcl_interfaces.srv import SetParameters
        from rclpy.parameter import Parameter

        message = Parameter(parameter, value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[message])
        return self.call(SetParameters, f"{name}/set_parameters", request).results[0]

    def close(self):
        import rclpy

        self._executor.shutdown(1.0)
        self._thread.join(2.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def _spin(self):
        from rclpy.executors import ExternalShutdownException

        with contextlib.suppress(ExternalShutdownException):
            self._executor.spin()


@pytest.fixture(scope="module")
def graph(ros_environment):
    """Return a client of the live graph."""
    client = Graph()
    yield client
    client.close()


class Stage:
    """Starts `infinipot` processes and ends them after the test or module."""

    def __init__(self, folder):
        self._folder = folder
        self._children = []

    def start(self, *arguments):
        """Start `infinipot ARGUMENTS...`."""
        from infinipot_ros.ros.children import Child

        log = self._folder / f"{len(self._children)}-{arguments[0]}.log"
        child = Child(arguments[0], [str(item) for item in arguments], Path(log))
        self._children.append(child)
        return child

    def node(self, *, remap=(), params_file=None, **parameters):
        """Start the node with parameters, `__` standing for the dots of their names."""
        arguments = ["node", "--ros-args"]
        if params_file is not None:
            arguments += ["--params-file", params_file]
        for name, value in parameters.items():
            arguments += ["-p", f"{name.replace('__', '.')}:={value}"]
        for rule in remap:
            arguments += ["-r", rule]
        return self.start(*arguments)

    def stop(self):
        for child in self._children:
            child.interrupt()
        codes = {child.name: child.stop() for child in self._children}
        for child in self._children:
            if "Traceback" in child.output():
                raise AssertionError(f"{child.name} printed a traceback:\n{child.output()}")
        assert set(codes.values()) <= {0, 1, 2}, codes


@pytest.fixture(scope="module")
def module_stage(ros_environment, tmp_path_factory):
    """Return a stage whose processes live as long as the module."""
    stage = Stage(tmp_path_factory.mktemp("stage"))
    yield stage
    stage.stop()


@pytest.fixture
def stage(ros_environment, tmp_path):
    """Return a stage whose processes live as long as the test."""
    stage = Stage(tmp_path)
    yield stage
    stage.stop()


@pytest.fixture(scope="session")
def image_message():
    """Return a maker of image messages from uint8 pixels."""
    import array

    from sensor_msgs.msg import Image

    def make(pixels, *, encoding="rgb8", stamp_ns=None):
        stamp_ns = time.time_ns() if stamp_ns is None else stamp_ns
        height, width = pixels.shape[:2]
        message = Image(height=height, width=width, encoding=encoding)
        message.step = pixels.nbytes // height
        message.data = array.array("B", pixels.tobytes())
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
        return message

    return make
