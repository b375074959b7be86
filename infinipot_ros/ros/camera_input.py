"""One image topic: find its type, subscribe, hand frames on, speak up when it is silent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.event_handler import (
    QoSRequestedIncompatibleQoSInfo,
    SubscriptionEventCallbacks,
)
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image

from infinipot_ros.core.errors import FrameError
from infinipot_ros.core.types import Frame
from infinipot_ros.ros.conversions import capture_ns, image_to_frame

ImageMessage: TypeAlias = Image | CompressedImage

TYPES: dict[str, type[Image] | type[CompressedImage]] = {
    "sensor_msgs/msg/Image": Image,
    "sensor_msgs/msg/CompressedImage": CompressedImage,
}
"""Image types by their graph name; where a topic has both, the first one is taken."""

LOG_PERIOD_S = 10.0
"""Least time between two lines about the same camera's bad images."""


class FrameSink(Protocol):
    """The part of `core.Worker` that takes frames."""

    def accept(self, camera: str, stamp_ns: int) -> bool:
        """Count a message and say whether its frame is wanted."""

    def submit(self, frame: Frame) -> None:
        """Take a frame that was accepted."""

    def reject(self, camera: str, reason: str) -> None:
        """Count a frame that was accepted and cannot be used."""


@dataclass(frozen=True)
class InputQos:
    """Quality of service of an image subscription."""

    reliability: str
    depth: int

    def profile(self) -> QoSProfile:
        """Return the profile: keep last, volatile."""
        return QoSProfile(
            history=HistoryPolicy.KEEP_LAST,
            depth=self.depth,
            reliability=ReliabilityPolicy[self.reliability.upper()],
        )


class CameraInput:
    """Follow one image topic for as long as the node is active.

    The type published there decides between Image and CompressedImage. `poll`, called a few times a
    second, subscribes when a publisher appears and again when the type changes.

    Args:
        node: the node.
        camera: name of the camera.
        topic: topic as configured; remapping and namespace apply.
        sink: takes the frames.
        qos: quality of service; `qos_overrides` parameters refine it.
        warn_after_s: seconds without an image after which `poll` says what is on the graph.
    """

    def __init__(
        self,
        node: Node,
        camera: str,
        topic: str,
        sink: FrameSink,
        qos: InputQos,
        warn_after_s: float,
    ) -> None:
        self.camera = camera
        self.topic = node.resolve_topic_name(topic)
        self._node = node
        self._relative = topic
        self._sink = sink
        self._qos = qos
        self._warn_after_s = warn_after_s
        self._group = MutuallyExclusiveCallbackGroup()
        self._subscription: Subscription[ImageMessage] | None = None
        self._type_name = ""
        self._since = time.monotonic()
        self._heard = False
        self._warned = False

    def poll(self) -> None:
        """Look at the graph: (re)subscribe where needed, warn once if no image has come."""
        found = self._types_found()
        wanted = self._type_name if self._type_name in found else next(iter(found), "")
        if wanted and wanted != self._type_name:
            self._subscribe(wanted)
        silent_s = time.monotonic() - self._since
        if not self._heard and not self._warned and silent_s >= self._warn_after_s:
            self._warned = True
            self._node.get_logger().warning(self._silence(silent_s))

    def close(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
            self._subscription = None

    def _types_found(self) -> list[str]:
        offered = {info.topic_type for info in self._node.get_publishers_info_by_topic(self.topic)}
        return [name for name in TYPES if name in offered]

    def _subscribe(self, type_name: str) -> None:
        self.close()
        self._subscription = self._node.create_subscription(
            TYPES[type_name],
            self._relative,
            self._on_image,
            self._qos.profile(),
            callback_group=self._group,
            event_callbacks=SubscriptionEventCallbacks(incompatible_qos=self._on_incompatible_qos),
            qos_overriding_options=QoSOverridingOptions(
                [QoSPolicyKind.RELIABILITY, QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH]
            ),
        )
        self._type_name = type_name
        self._node.get_logger().info(
            f"camera {self.camera!r}: watching {self.topic} ({type_name.rsplit('/', 1)[-1]})"
        )

    def _on_image(self, msg: ImageMessage) -> None:
        self._heard = True
        received_ns = self._node.get_clock().now().nanoseconds
        if not self._sink.accept(self.camera, capture_ns(msg, received_ns)):
            return
        try:
            frame = image_to_frame(msg, self.camera, received_ns)
        except FrameError as error:
            self._sink.reject(self.camera, "malformed")
            self._skip(str(error))
        except Exception as error:
            self._sink.reject(self.camera, "malformed")
            self._skip(f"{type(error).__name__}: {error}")
        else:
            self._sink.submit(frame)

    def _skip(self, reason: str) -> None:
        self._node.get_logger().warning(
            f"camera {self.camera!r}: an image on {self.topic} was skipped: {reason}",
            throttle_duration_sec=LOG_PERIOD_S,
        )

    def _on_incompatible_qos(self, event: QoSRequestedIncompatibleQoSInfo) -> None:
        policy = QoSPolicyKind(event.last_policy_kind).name.lower()
        self._node.get_logger().warning(
            f"camera {self.camera!r}: a publisher on {self.topic} offers a {policy} that this "
            f"node's subscription does not accept, so none of its images arrive; set the parameter "
            f"qos.{policy} or qos_overrides.{self.topic}.subscription.{policy} to what it offers "
            "(reliability: best_effort accepts every publisher)"
        )

    def _silence(self, silent_s: float) -> str:
        """Say what is there instead of images, and what to do."""
        here = self._node.get_publishers_info_by_topic(self.topic)
        types = sorted({info.topic_type for info in here})
        text = f"camera {self.camera!r}: no image on {self.topic} for {silent_s:.0f} s. "
        if self._type_name:
            text += (
                f"It has {len(here)} publisher(s) of {', '.join(types)} but nothing arrived: is "
                "the camera running, does its quality of service fit?"
            )
            return text
        if types:
            text += f"It carries {', '.join(types)}, which is no image type. "
        else:
            text += "Nobody publishes it. "
        others = [
            f"{name} ({next(kind for kind in kinds if kind in TYPES).rsplit('/', 1)[-1]})"
            for name, kinds in self._node.get_topic_names_and_types()
            if name != self.topic and any(kind in TYPES for kind in kinds)
        ]
        if others:
            text += (
                f"Image topics that exist: {', '.join(sorted(others))}. Set the parameter "
                f"image_topics, or remap: --ros-args -r {self._relative}:=TOPIC"
            )
        else:
            text += "No image topic exists at all: start the camera, and check ROS_DOMAIN_ID."
        return text
