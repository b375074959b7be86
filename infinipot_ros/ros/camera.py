"""`infinipot camera`: publish RoomWorld, a video, a bag or pictures as a camera driver does."""

from __future__ import annotations

import argparse
import array
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from infinipot_ros.replay.payload import CompressedPayload, Payload, RawPayload
from infinipot_ros.replay.sources import Source, TimedImage, open_source
from infinipot_ros.ros.dds import use_image_profile
from infinipot_ros.ros.stopping import StopRequest, end

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.publisher import Publisher

_NS = 1_000_000_000

SKIP_BEHIND_NS = _NS // 2
"""An image that is overdue by more is left out, as by a camera whose buffer is full."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--source",
        default="roomworld",
        help="'roomworld', a video file, a bag folder or a folder of pictures (%(default)s)",
    )
    parser.add_argument("--topic", default="image", help="image topic to publish (%(default)s)")
    parser.add_argument(
        "--rate", type=_rate, help="images per second (default: the source's own, else 10)"
    )
    parser.add_argument("--loop", action="store_true", help="start again at the end")
    parser.add_argument(
        "--compressed", action="store_true", help="publish sensor_msgs/CompressedImage (JPEG)"
    )
    parser.add_argument("--size", type=_size, metavar="WxH", help="scale the images, e.g. 640x480")
    parser.add_argument("--seed", type=int, default=0, help="RoomWorld: which world (%(default)s)")
    parser.add_argument(
        "--tour", type=float, default=120.0, help="RoomWorld: seconds of the tour (%(default)s)"
    )
    parser.add_argument(
        "--regime",
        default="tour",
        help="RoomWorld: tour, patrol, watch, handheld, cuts or crowd (%(default)s)",
    )
    parser.add_argument("--bag-topic", help="bag: image topic to play (default: the first one)")
    parser.add_argument("--frame-id", default="camera", help="frame of the images (%(default)s)")
    parser.add_argument(
        "--reliable", action="store_true", help="offer reliable instead of best-effort delivery"
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for a subscriber before the first image"
    )
    parser.epilog = "ROS arguments may follow --ros-args: remapping, namespace, parameters."


def run(args: argparse.Namespace) -> int:
    """Publish until the source ends or the process is told to stop; return the exit code."""
    stop = StopRequest()
    stop.install()
    try:
        source = open_source(
            args.source,
            rate=args.rate,
            seed=args.seed,
            tour_s=args.tour,
            regime=args.regime,
            bag_topic=args.bag_topic,
        )
    except ValueError as error:
        print(f"infinipot camera: {error}", file=sys.stderr)
        return 1
    use_image_profile()

    import rclpy
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=args.ros_args, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("camera")
    stop.arm()
    try:
        _play(node, source, args, stop)
    except ValueError as error:
        print(f"infinipot camera: {error}", file=sys.stderr)
        return 1
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
    return end(0)


def rounds(source: Source, *, loop: bool) -> Iterator[TimedImage]:
    """Yield the source's images, over and over if asked; times go on growing."""
    offset_ns = 0
    while True:
        last_ns = 0
        for image in source:
            last_ns = image.time_ns
            yield replace(image, time_ns=offset_ns + last_ns)
        if not loop:
            return
        offset_ns += last_ns + source.period_ns


def _play(node: Node, source: Source, args: argparse.Namespace, stop: StopRequest) -> None:
    images = rounds(source, loop=args.loop)
    first = next(images)
    payload = _shape(first.payload, args)
    publisher = _publisher(node, args, compressed=isinstance(payload, CompressedPayload))
    while args.wait and publisher.get_subscription_count() == 0:
        if stop.wait(0.05):
            return
    # Stamps are the due times, exact to the nanosecond: first stamp + time in the source.
    first_ns = time.time_ns()
    print(
        f"camera: {source.name} on {publisher.topic_name}, {payload.describe()}, "
        f"first stamp {first_ns} ns",
        flush=True,
    )
    published = skipped = 0
    for image in itertools.chain([first], images):
        behind_ns = time.time_ns() - (first_ns + image.time_ns)
        if stop.wait(max(0.0, -behind_ns / _NS)):
            break
        if behind_ns > SKIP_BEHIND_NS:
            skipped += 1
            continue
        payload = _shape(image.payload, args)
        publisher.publish(_message(payload, first_ns + image.time_ns, args.frame_id))
        published += 1
    print(
        f"camera: published {published} images"
        + (f", left out {skipped} that were overdue on this machine" if skipped else ""),
        flush=True,
    )
    # Best-effort publishers do not wait for their last samples; give the middleware a moment.
    stop.wait(0.2)


def _publisher(node: Node, args: argparse.Namespace, *, compressed: bool) -> Publisher:
    from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import CompressedImage, Image

    reliability = ReliabilityPolicy.RELIABLE if args.reliable else ReliabilityPolicy.BEST_EFFORT
    qos = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=5, reliability=reliability)
    return node.create_publisher(CompressedImage if compressed else Image, args.topic, qos)


def _shape(payload: Payload, args: argparse.Namespace) -> Payload:
    """Scale and compress as the options say; an image that already fits passes untouched."""
    if args.size is not None:
        import cv2

        scaled = cv2.resize(payload.to_rgb(), args.size, interpolation=cv2.INTER_LINEAR)
        payload = RawPayload.from_pixels(scaled, "rgb8")
    if args.compressed and isinstance(payload, RawPayload):
        from infinipot_ros.replay.bag import to_jpeg

        payload = to_jpeg(payload.to_rgb())
    return payload


def _message(payload: Payload, stamp_ns: int, frame_id: str) -> object:
    from sensor_msgs.msg import CompressedImage, Image

    # rclpy copies an array.array at once, and anything else element by element.
    data = array.array("B", payload.data.tobytes())
    if isinstance(payload, CompressedPayload):
        out = CompressedImage(format=payload.format)
    else:
        out = Image(height=payload.height, width=payload.width, encoding=payload.encoding)
        out.step = payload.step
        out.is_bigendian = payload.is_bigendian
    out.data = data
    out.header.frame_id = frame_id
    out.header.stamp.sec, out.header.stamp.nanosec = divmod(stamp_ns, _NS)
    return out


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.0 < rate <= 1000.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate; it must be in (0, 1000] images/s")
    return rate


def _size(text: str) -> tuple[int, int]:
    width, sign, height = text.lower().partition("x")
    if not (sign and width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write WIDTHxHEIGHT, e.g. 640x480")
    return int(width), int(height)
