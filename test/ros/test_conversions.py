"""Image messages to frames: one table of messages, through our own path and through cv_bridge."""

from __future__ import annotations

import array

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CompressedImage, Image

from infinipot_ros.core import FrameError
from infinipot_ros.core.images import decode_raw
from infinipot_ros.replay.bag import to_jpeg
from infinipot_ros.ros import conversions
from infinipot_ros.ros.conversions import (
    BRIDGE_ENCODINGS,
    bridge_to_rgb,
    image_to_frame,
    ns_to_stamp,
    stamp_to_ns,
    working_bridge,
)

HEIGHT, WIDTH, PADDING = 6, 8, 10
RGB = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
FLAT = np.broadcast_to(np.array([200, 120, 40], np.uint8), (HEIGHT, WIDTH, 3))


def channels(order, bits=8):
    """Return the samples of a packed colour encoding."""
    pixels = RGB[..., [0 if c == "a" else "rgb".index(c) for c in order]].copy()
    if order.endswith("a"):
        pixels[..., 3] = 255
    return pixels if bits == 8 else pixels.astype(np.uint16) * 257


def mosaic(pattern):
    """Return a colour mosaic of a flat image."""
    tile = np.array([FLAT[0, 0, "rgb".index(c)] for c in pattern], np.uint8).reshape(2, 2)
    return np.tile(tile, (HEIGHT // 2, WIDTH // 2))


# encoding, samples, expected pixels, and how far apart two right conversions may be
TABLE = [
    *[(f"{o}8", channels(o), RGB, 0) for o in ("rgb", "bgr", "rgba", "bgra")],
    *[(f"{o}16", channels(o, 16), RGB, 1) for o in ("rgb", "bgr", "rgba", "bgra")],
    ("mono8", RGB[..., 0], RGB[..., [0, 0, 0]], 0),
    ("mono16", RGB[..., 0].astype(np.uint16) * 257, RGB[..., [0, 0, 0]], 1),
    *[(f"bayer_{p}8", mosaic(p), FLAT, 1) for p in ("rggb", "bggr", "gbrg", "grbg")],
]


def message(encoding, samples, *, bigendian=False, stamp=(12, 34)):
    """Return an image message with padded rows."""
    if bigendian:
        samples = samples.astype(samples.dtype.newbyteorder(">"))
    rows = [row.tobytes() + b"\xaa" * PADDING for row in samples]
    out = Image(height=HEIGHT, width=WIDTH, encoding=encoding, step=len(rows[0]))
    out.is_bigendian = bigendian
    out.data = array.array("B", b"".join(rows))
    out.header.stamp = Time(sec=stamp[0], nanosec=stamp[1])
    return out


@pytest.mark.parametrize("encoding, samples, expected, tolerance", TABLE, ids=lambda v: str(v)[:12])
def test_our_own_path(encoding, samples, expected, tolerance):
    for bigendian in {False, samples.dtype.itemsize > 1}:
        msg = message(encoding, samples, bigendian=bigendian)
        out = decode_raw(
            msg.encoding, msg.height, msg.width, msg.step, bool(msg.is_bigendian), msg.data
        )
        check(out, expected, tolerance, encoding)


@pytest.mark.parametrize("encoding, samples, expected, tolerance", TABLE, ids=lambda v: str(v)[:12])
def test_through_cv_bridge(encoding, samples, expected, tolerance):
    pytest.importorskip("cv_bridge")
    bridge = working_bridge()
    if bridge is None:
        pytest.skip("the cv_bridge that is installed is not ROS 2's")
    check(bridge_to_rgb(bridge, message(encoding, samples)), expected, tolerance, encoding)


def check(out, expected, tolerance, encoding):
    assert out.dtype == np.uint8
    inner = slice(2, -2) if encoding.startswith("bayer") else slice(None)
    np.testing.assert_allclose(
        out[inner, inner].astype(int), expected[inner, inner], atol=tolerance
    )


def test_the_table_covers_what_goes_through_cv_bridge():
    assert {row[0] for row in TABLE} == BRIDGE_ENCODINGS


class FakeBridge:
    """Stands for a cv_bridge, and remembers what it was asked."""

    def __init__(self, result):
        self.result, self.asked = result, []

    def imgmsg_to_cv2(self, msg, desired_encoding):
        self.asked.append((msg.encoding, desired_encoding))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_a_working_bridge_is_used_for_its_encodings_only(monkeypatch):
    bridge = FakeBridge(RGB)
    monkeypatch.setattr(conversions, "working_bridge", lambda: bridge)
    frame = image_to_frame(message("bgr8", channels("bgr")), "front", 0)
    np.testing.assert_array_equal(frame.image, RGB)
    depth = np.full((HEIGHT, WIDTH), 1000, np.uint16)
    image_to_frame(message("16UC1", depth), "front", 0)
    assert bridge.asked == [("bgr8", "rgb8")]


def test_what_a_bridge_raises_becomes_a_frame_error(monkeypatch):
    monkeypatch.setattr(conversions, "working_bridge", lambda: FakeBridge(TypeError("no")))
    with pytest.raises(FrameError, match="cv_bridge cannot convert 'bgr8'"):
        image_to_frame(message("bgr8", channels("bgr")), "front", 0)


def test_sizes_are_checked_before_a_bridge_sees_them(monkeypatch):
    bridge = FakeBridge(RGB)
    monkeypatch.setattr(conversions, "working_bridge", lambda: bridge)
    broken = message("bgr8", channels("bgr"))
    broken.height = 600
    with pytest.raises(FrameError, match="bytes"):
        image_to_frame(broken, "front", 0)
    assert bridge.asked == []


def test_stamps_are_whole_nanoseconds():
    frame = image_to_frame(message("rgb8", RGB, stamp=(1764513600, 123456789)), "front", 5)
    assert frame.stamp_ns == 1764513600_123456789
    assert frame.camera == "front"
    assert ns_to_stamp(frame.stamp_ns) == Time(sec=1764513600, nanosec=123456789)
    assert stamp_to_ns(Time(sec=10, nanosec=5_000_000)) == 10_005_000_000
    assert ns_to_stamp(None) == Time()


def test_a_zero_stamp_takes_the_time_of_arrival():
    assert image_to_frame(message("rgb8", RGB, stamp=(0, 0)), "front", 77).stamp_ns == 77


def test_compressed_images_are_decoded():
    large = np.kron(FLAT, np.ones((4, 4, 1), np.uint8))
    packed = to_jpeg(large)
    msg = CompressedImage(format=packed.format, data=packed.data.tobytes())
    frame = image_to_frame(msg, "front", 9)
    np.testing.assert_allclose(frame.image.astype(int), large, atol=3)
    assert frame.stamp_ns == 9


def test_a_frame_does_not_share_memory_with_its_message():
    msg = message("rgb8", RGB)
    frame = image_to_frame(msg, "front", 0)
    msg.data[0] = (msg.data[0] + 1) % 256
    np.testing.assert_array_equal(frame.image, RGB)
