"""From image messages to frames: one function, `image_to_frame`."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CompressedImage, Image

from infinipot_ros.core import images
from infinipot_ros.core.errors import FrameError
from infinipot_ros.core.types import Frame

_NS = 1_000_000_000

BRIDGE_ENCODINGS = frozenset(
    ["rgb8", "bgr8", "rgba8", "bgra8", "mono8", "mono16", "rgb16", "bgr16", "rgba16", "bgra16"]
    + [f"bayer_{order}8" for order in ("rggb", "bggr", "gbrg", "grbg")]
)
"""Encodings that cv_bridge converts to rgb8 by the same rules as `core.images`; the others differ
between its releases."""


class Bridge(Protocol):
    """The part of `cv_bridge.CvBridge` that is used."""

    def imgmsg_to_cv2(self, msg: Image, desired_encoding: str) -> Any:
        """Return the pixels as an array."""


def stamp_to_ns(stamp: Time) -> int:
    """Return a message's time in integer nanoseconds."""
    return int(stamp.sec) * _NS + int(stamp.nanosec)


_LAST_SECOND = 2**31 - 1


def ns_to_stamp(stamp_ns: int | None) -> Time:
    """Return nanoseconds as a message's time; None becomes zero, the mark of "no time"."""
    sec, nanosec = divmod(stamp_ns or 0, _NS)
    # Nanoseconds of a second and more in a message can carry past what a message can say.
    return Time(sec=min(sec, _LAST_SECOND), nanosec=nanosec)


def capture_ns(msg: Image | CompressedImage, received_ns: int) -> int:
    """Return when the image was taken: its stamp, or where a driver leaves that zero, its arrival.

    Args:
        msg: image message.
        received_ns: arrival in the node's clock, integer nanoseconds.
    """
    stamp_ns = stamp_to_ns(msg.header.stamp)
    return stamp_ns if stamp_ns > 0 else received_ns


def image_to_frame(msg: Image | CompressedImage, camera: str, received_ns: int) -> Frame:
    """Convert an image message to a frame.

    An uncompressed image goes through cv_bridge where a working one is installed and the encoding
    is in `BRIDGE_ENCODINGS`, and through `core.images` otherwise; a compressed one always through
    the latter.

    Args:
        msg: image message, not changed and not referred to afterwards.
        camera: name of the camera.
        received_ns: arrival in the node's clock, used where the stamp is zero.

    Raises:
        FrameError: the message cannot be read; the text says which field is wrong.
    """
    stamp_ns = capture_ns(msg, received_ns)
    if isinstance(msg, CompressedImage):
        pixels = images.decode_compressed(msg.format, np.frombuffer(msg.data, np.uint8))
    else:
        pixels = _decode_raw(msg)
    return Frame(image=pixels, stamp_ns=stamp_ns, camera=camera)


def _decode_raw(msg: Image) -> images.RGB:
    data = np.frombuffer(msg.data, np.uint8)
    if msg.encoding.lower() in BRIDGE_ENCODINGS:
        bridge = working_bridge()
        if bridge is not None:
            images.check_layout(msg.encoding, msg.height, msg.width, msg.step, len(data))
            return bridge_to_rgb(bridge, msg)
    return images.decode_raw(
        msg.encoding, msg.height, msg.width, msg.step, bool(msg.is_bigendian), data
    )


def bridge_to_rgb(bridge: Bridge, msg: Image) -> images.RGB:
    """Convert through cv_bridge.

    Raises:
        FrameError: cv_bridge refused the message.
    """
    try:
        pixels = bridge.imgmsg_to_cv2(msg, desired_encoding="rgb8")
    except Exception as error:  # cv_bridge raises CvBridgeError, cv2.error, TypeError, ValueError
        raise FrameError(f"cv_bridge cannot convert {msg.encoding!r}: {error}") from error
    return np.array(pixels, dtype=np.uint8, order="C")


@functools.cache
def working_bridge() -> Bridge | None:
    """Return a cv_bridge that passes a small conversion, None where there is none.

    The package of that name on PyPI is not ROS 2's and imports all the same, hence the trial.
    """
    try:
        from cv_bridge import CvBridge

        bridge: Bridge = CvBridge()
        pixels = bridge_to_rgb(bridge, _trial_image())
    except Exception:
        return None
    return bridge if pixels.tolist() == _TRIAL_PIXELS else None


_TRIAL_PIXELS = [[[3, 2, 1], [6, 5, 4]], [[9, 8, 7], [12, 11, 10]]]


def _trial_image() -> Image:
    """Make a 2x2 bgr8 image with two bytes of padding a row."""
    msg = Image(height=2, width=2, encoding="bgr8", step=8)
    msg.data = [1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0]
    return msg
