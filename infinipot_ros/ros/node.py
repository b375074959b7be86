"""InfinipotNode: cameras in, questions and answers out, with a managed lifecycle."""

from __future__ import annotations

import functools
import gc
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.lifecycle.node import LifecycleNodeMixin
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from rclpy.timer import Timer
from std_srvs.srv import Trigger

from infinipot_ros.core import BusyError, InfinipotError, StoppedError, StreamEngine, Worker
from infinipot_ros.core.types import EMBEDDED_MODEL
from infinipot_ros.msg import MemoryStatus
from infinipot_ros.ros import parameters
from infinipot_ros.ros.camera_input import CameraInput, InputQos
from infinipot_ros.ros.questions import QuestionDoors
from infinipot_ros.ros.settings import Settings, in_parameter_names
from infinipot_ros.ros.status import status_message

GRAPH_POLL_S = 0.25
"""How often the node looks whether an image topic has appeared or changed its type, seconds."""

STOP_WAIT_S = 1.5
"""How long deactivation waits for the current block or token, seconds."""

DRAIN_WAIT_S = 0.3
"""How long the node waits at its end for replies to questions that it was serving, seconds."""

# Threads besides those that wait for answers or take images: timers, parameter, lifecycle, action
# and reset calls, a transition that loads the model.
_SPARE_THREADS = 7

_WHY_NOT = {
    "activating": "the node is activating: the model is loading",
    "deactivating": "the node is stopping",
    "active": "the node is stopping",
}

Transition = Callable[["InfinipotNode", LifecycleState], TransitionCallbackReturn]


def _reported(transition: Transition) -> Transition:
    """Turn a refusal into FAILURE and a fault into ERROR, both with a line in the log.

    rclpy swallows what a transition raises.
    """

    @functools.wraps(transition)
    def run(self: InfinipotNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(self, state)
        except InfinipotError as error:
            self.get_logger().error(in_parameter_names(str(error)))
            return TransitionCallbackReturn.FAILURE
        except ModuleNotFoundError as error:
            self.get_logger().error(
                f"{error}. The node runs in an interpreter that lacks it: install it there, or "
                "start `infinipot node` from the environment that has it"
            )
            return TransitionCallbackReturn.FAILURE
        except Exception:
            self.get_logger().error(f"unexpected fault:\n{traceback.format_exc()}")
            return TransitionCallbackReturn.ERROR

    return run


class InfinipotNode(LifecycleNodeMixin, Node):
    """Watch cameras in constant memory and answer questions about what they showed.

    States: `configure` reads and checks the parameters; `activate` loads the model, starts the
    worker and subscribes; `deactivate` unsubscribes and stops the worker, the memory stays;
    `cleanup` frees the model. Questions are served while active and refused, saying why, otherwise.

    It is a LifecycleNode whose lifecycle services have a callback group of their own, so that
    `get_state` answers while `activate` loads the model.

    Args:
        node_name: name before remapping.
        **kwargs: as for `rclpy.node.Node`.

    Raises:
        ConfigError: a parameter is set to a value that is not allowed.
    """

    def __init__(self, node_name: str = "infinipot", **kwargs: Any) -> None:
        Node.__init__(self, node_name, **kwargs)
        LifecycleNodeMixin.__init__(self, callback_group=ReentrantCallbackGroup())
        self._configured = False
        self._settings: Settings | None = None
        self._engines: dict[str, StreamEngine] = {}
        self._worker: Worker | None = None
        self._unfinished: Worker | None = None  # told to stop, but still inside a block
        self._inputs: list[CameraInput] = []
        self._timers_active: list[Timer] = []
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer_group = MutuallyExclusiveCallbackGroup()
        parameters.declare(self)
        for name, likely in parameters.unknown(self).items():
            hint = f"; did you mean {likely!r}?" if likely else ""
            self.get_logger().warning(f"parameter {name!r} is unknown and ignored{hint}")
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._status = self.create_lifecycle_publisher(MemoryStatus, "~/status", 10)
        self._doors = QuestionDoors(self, self)
        self._reset = self.create_service(
            Trigger, "~/reset", self._on_reset, callback_group=MutuallyExclusiveCallbackGroup()
        )

    @property
    def threads(self) -> int:
        """Executor threads that the node needs to answer every call while questions wait."""
        waiting: int = self.get_parameter("queue.questions").value
        cameras = len(self.get_parameter("image_topics").value)
        return waiting + 1 + cameras + _SPARE_THREADS

    @property
    def state(self) -> str:
        """Label of the lifecycle state, for example `active`."""
        return str(self._state_machine.current_state[1])

    # ---- transitions -----------------------------------------------------------------------------

    def autostart(self) -> None:
        """Configure and activate, if the parameter `autostart` says so."""
        if not self.get_parameter("autostart").value:
            return
        for name, trigger in (
            ("configure", self.trigger_configure),
            ("activate", self.trigger_activate),
        ):
            if trigger() != TransitionCallbackReturn.SUCCESS:
                self.get_logger().error(
                    f"autostart: {name} failed (see above), the node stays {self.state}. Correct "
                    f"the parameters, then request {name} again: ros2 lifecycle set "
                    f"{self.get_fully_qualified_name()} {name}"
                )
                return

    @_reported
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read and check the parameters."""
        self._settings = Settings.from_values(parameters.read(self))
        self._configured = True
        return super().on_configure(state)

    @_reported
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the model if it is not loaded, start the worker, subscribe."""
        settings = self._require_settings()
        values = settings.values
        self._await_unfinished()
        if not self._engines:
            self.get_logger().info(f"loading model {values['model']!r}")
            self._engines = load_engines(settings)
            # The libraries' hundreds of thousands of objects live until cleanup. A collection that
            # walks them stops every callback for a third of a second.
            gc.freeze()
        worker = Worker(
            self._engines,
            fps=values["sampling.fps"],
            max_pending_frames=values["queue.frames"],
            max_pending_questions=values["queue.questions"],
            question_timeout_s=values["question.timeout_s"],
            max_conversations=values["question.max_conversations"],
            conversation_timeout_s=values["question.conversation_timeout_s"],
            on_error=self.get_logger().error,
        )
        worker.start()
        self._worker = worker
        qos = InputQos(values["qos.reliability"], values["qos.depth"])
        self._inputs = [
            CameraInput(self, camera, topic, worker, qos, values["warn_after_s"])
            for camera, topic in settings.topics.items()
        ]
        self._timers_active = [
            self._every(GRAPH_POLL_S, self._poll_inputs),
            self._every(values["status.period_s"], self._publish_status),
        ]
        if values["model"] == EMBEDDED_MODEL:
            self.get_logger().info(
                "the embedded model knows RoomWorld only (infinipot camera --source roomworld); "
                "about other images its answers mean nothing"
            )
        result = super().on_activate(state)
        self.get_logger().info(
            f"active: model {values['model']!r}, policy {values['memory.policy']!r}, at most "
            f"{values['memory.max_tokens']} tokens a camera, cameras "
            + ", ".join(f"{item.camera!r} on {item.topic}" for item in self._inputs)
        )
        return result

    @_reported
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Unsubscribe and stop the worker; the memory stays."""
        self._stop()
        return super().on_deactivate(state)

    @_reported
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the model and the memory."""
        self._await_unfinished()
        self._free()
        return super().on_cleanup(state)

    @_reported
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and free everything."""
        self._stop()
        self._free()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Go back to unconfigured after a fault."""
        self.get_logger().error(f"fault while {state.label}: the node is unconfigured again")
        self._stop()
        self._free()
        return TransitionCallbackReturn.SUCCESS

    def wind_down(self) -> None:
        """Stop the worker and let those who asked have their replies, in whatever state it is.

        Call it while the executor still spins, `close` once it does not.
        """
        self._stop()
        self._doors.drain(DRAIN_WAIT_S)

    def close(self) -> None:
        """Take the node off the graph, at once.

        `destroy_node` leaves the state machine alone, which would hold the participant and its
        shared memory for as long as a thread that loads a model holds the node.
        """
        self._doors.close()
        self.destroy_node()
        self._state_machine.destroy_when_not_in_use()

    # ---- what the doors ask for ------------------------------------------------------------------

    def worker(self) -> Worker:
        """Return the running worker.

        Raises:
            StoppedError: the node is not active.
        """
        worker = self._worker
        if worker is None:
            raise StoppedError(_WHY_NOT.get(self.state, f"the node is {self.state}, not active"))
        return worker

    def default_timeout_s(self) -> float:
        """Return the time limit of a question that sets none, seconds."""
        return float(self.get_parameter("question.timeout_s").value)

    # ---- callbacks -------------------------------------------------------------------------------

    def _on_reset(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            worker = self.worker()
            worker.reset()
        except InfinipotError as error:
            response.success, response.message = False, str(error)
        else:
            response.success = True
            response.message = f"forgot what {', '.join(worker.cameras)} showed"
        return response

    def _on_set_parameters(self, changes: Sequence[RosParameter[Any]]) -> SetParametersResult:
        for change in changes:
            reason = parameters.refusal(change.name, change.value, configured=self._configured)
            if reason is not None:
                return SetParametersResult(successful=False, reason=reason)
        return SetParametersResult(successful=True)

    def _publish_status(self) -> None:
        worker = self._worker
        if worker is None:
            return
        now_ns = self.get_clock().now().nanoseconds
        for camera in worker.cameras:
            self._status.publish(status_message(worker.status(camera), now_ns))

    def _poll_inputs(self) -> None:
        for item in self._inputs:
            try:
                item.poll()
            except Exception as error:  # one camera's wrong override must not blind the others
                self.get_logger().error(
                    f"camera {item.camera!r}: {item.topic} cannot be watched: "
                    + " ".join(str(error).split()),
                    throttle_duration_sec=10.0,
                )

    # ---- parts -----------------------------------------------------------------------------------

    def _every(self, period_s: float, callback: Callable[[], None]) -> Timer:
        """Call back in real time, also while simulated time stands still."""
        return self.create_timer(
            period_s, callback, callback_group=self._timer_group, clock=self._steady
        )

    def _stop(self) -> None:
        for timer in self._timers_active:
            self.destroy_timer(timer)
        for item in self._inputs:
            item.close()
        self._timers_active, self._inputs = [], []
        worker, self._worker = self._worker, None
        if worker is not None and not worker.stop(STOP_WAIT_S):
            self._unfinished = worker
            self.get_logger().warning(
                f"the model is still busy with a block after {STOP_WAIT_S:g} s; it stops after it"
            )

    def _await_unfinished(self) -> None:
        """Wait for a worker that was stopped inside a block: two must never share an engine.

        Raises:
            BusyError: it is still at it.
        """
        if self._unfinished is not None and not self._unfinished.join(STOP_WAIT_S):
            raise BusyError(
                "the model is still busy with a block from before deactivation; request this "
                "transition again when it is done, or lower sampling.block_steps"
            )
        self._unfinished = None

    def _free(self) -> None:
        self._engines = {}
        self._settings = None
        self._configured = False
        gc.unfreeze()
        gc.collect()
        free_accelerator()

    def _require_settings(self) -> Settings:
        if self._settings is None:
            raise StoppedError("the node has not been configured")
        return self._settings


def load_engines(settings: Settings) -> dict[str, StreamEngine]:
    """Load the model once and give each camera a memory of its own.

    Raises:
        ConfigError: the memory's configuration does not fit the model.
        ModelError: the model cannot be loaded.
    """
    import torch

    values = settings.values
    torch.set_num_threads(values["cpu_threads"] or _default_threads())
    cameras = iter(settings.topics)
    first = StreamEngine.from_pretrained(
        values["model"],
        settings.engine,
        device=values["device"],
        dtype=values["dtype"],
        attn_implementation=values["attn_implementation"],
        device_map=values["device_map"],
        quantization=values["quantization"],
        engines=len(settings.topics),
    )
    engines = {next(cameras): first}
    engines.update({camera: StreamEngine(first.adapter, settings.engine) for camera in cameras})
    return engines


@functools.cache
def _default_threads() -> int:
    """Return how many threads torch takes by itself, as it was before the node set a number."""
    import torch

    return torch.get_num_threads()


def free_accelerator() -> None:
    """Return the accelerator's unused memory to the system."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
