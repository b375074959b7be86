"""Read images from ROS 2 bags, and write them, without ROS: sqlite3 and mcap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from infinipot_ros.replay.payload import CompressedPayload, Payload, RawPayload

_NS = 1_000_000_000
RAW_TYPE = "sensor_msgs/msg/Image"
COMPRESSED_TYPE = "sensor_msgs/msg/CompressedImage"


class BagError(ValueError):
    """A bag that cannot be read, or that has no such topic; the message says what is there."""


@dataclass(frozen=True)
class ImageTopic:
    """An image topic of a bag.

    Attributes:
        name: topic.
        type: `RAW_TYPE` or `COMPRESSED_TYPE`.
        count: messages.
    """

    name: str
    type: str
    count: int


@dataclass(frozen=True)
class BagImage:
    """One image message of a bag.

    Attributes:
        topic: topic it was recorded on.
        stamp_ns: capture stamp in integer nanoseconds; the time of recording where it is zero.
        frame_id: coordinate frame of the camera.
        payload: the image itself.
    """

    topic: str
    stamp_ns: int
    frame_id: str
    payload: Payload


class ImageBag:
    """The image topics of one bag; use it in a `with` statement.

    Args:
        path: bag folder.

    Raises:
        BagError: on entering, if the folder is no bag.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._reader: AnyReader | None = None

    def __enter__(self) -> ImageBag:
        try:
            # Bags written before Iron carry no message definitions; images have not changed since.
            reader = AnyReader([self.path], default_typestore=get_typestore(Stores.ROS2_HUMBLE))
            self._reader = reader.__enter__()
        except (AnyReaderError, OSError) as error:
            raise BagError(
                f"{self.path} cannot be read as a ROS 2 bag ({error}); give the folder that holds "
                "metadata.yaml"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reader is not None:
            self._reader.__exit__(kind, value, trace)
            self._reader = None

    def topics(self) -> list[ImageTopic]:
        """Return the image topics, in the order of their names."""
        counts: dict[tuple[str, str], int] = {}
        for item in self._open.connections:
            if item.msgtype in (RAW_TYPE, COMPRESSED_TYPE):
                key = (item.topic, item.msgtype)
                counts[key] = counts.get(key, 0) + item.msgcount
        return [ImageTopic(name, kind, count) for (name, kind), count in sorted(counts.items())]

    def images(self, topic: str | None = None) -> Iterator[BagImage]:
        """Yield the images of a topic in the order of recording.

        Args:
            topic: image topic; None takes the first one.

        Raises:
            BagError: no such image topic.
        """
        reader = self._open
        name = self._choose(topic)
        connections = [
            item
            for item in reader.connections
            if item.topic == name and item.msgtype in (RAW_TYPE, COMPRESSED_TYPE)
        ]
        for connection, recorded_ns, raw in reader.messages(connections):
            message: Any = reader.deserialize(raw, connection.msgtype)
            stamp = message.header.stamp
            yield BagImage(
                topic=name,
                stamp_ns=stamp.sec * _NS + stamp.nanosec or recorded_ns,
                frame_id=message.header.frame_id,
                payload=_payload(connection.msgtype, message),
            )

    @property
    def _open(self) -> AnyReader:
        if self._reader is None:
            raise BagError(f"{self.path} is not open; use it in a `with` statement")
        return self._reader

    def _choose(self, topic: str | None) -> str:
        names = [item.name for item in self.topics()]
        if not names:
            others = sorted({f"{item.topic} ({item.msgtype})" for item in self._open.connections})
            raise BagError(f"{self.path} has no image topic, only {', '.join(others) or 'nothing'}")
        if topic is None:
            return names[0]
        if topic not in names:
            raise BagError(f"{self.path} has no image topic {topic!r}; it has {', '.join(names)}")
        return topic


def write_image_bag(
    path: str | Path,
    images: Iterable[tuple[int, NDArray[np.uint8]]],
    *,
    topic: str = "/image",
    frame_id: str = "camera",
    storage: str = "mcap",
    jpeg_quality: int | None = None,
) -> int:
    """Write images to a new bag.

    Args:
        path: folder to create.
        images: stamp in integer nanoseconds and uint8 RGB ``[height, width, 3]``, in order.
        topic: topic of the messages.
        frame_id: coordinate frame of the camera.
        storage: ``mcap`` or ``sqlite3``.
        jpeg_quality: write `CompressedImage` of this JPEG quality, 1 to 100; None writes `Image`.

    Returns:
        Messages written.
    """
    store = get_typestore(Stores.ROS2_HUMBLE)
    types: dict[str, Any] = dict(store.types)
    kind = RAW_TYPE if jpeg_quality is None else COMPRESSED_TYPE
    count = 0
    with Writer(Path(path), version=9, storage_plugin=StoragePlugin[storage.upper()]) as writer:
        connection = writer.add_connection(topic, kind, typestore=store)
        for stamp_ns, pixels in images:
            sec, nanosec = divmod(stamp_ns, _NS)
            header = types["std_msgs/msg/Header"](
                stamp=types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec),
                frame_id=frame_id,
            )
            if jpeg_quality is None:
                raw = RawPayload.from_pixels(pixels, "rgb8")
                message = types[RAW_TYPE](
                    header, raw.height, raw.width, raw.encoding, 0, raw.step, raw.data
                )
            else:
                packed = to_jpeg(pixels, jpeg_quality)
                message = types[COMPRESSED_TYPE](header, packed.format, packed.data)
            writer.write(connection, stamp_ns, store.serialize_cdr(message, kind))
            count += 1
    return count


def to_jpeg(pixels: NDArray[np.uint8], quality: int = 90) -> CompressedPayload:
    """Encode uint8 RGB ``[height, width, 3]`` as camera drivers do."""
    import cv2

    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    ok, data = cv2.imencode(".jpg", np.ascontiguousarray(pixels[..., ::-1]), options)
    if not ok:
        raise ValueError(f"an image of shape {pixels.shape} cannot be encoded as JPEG")
    return CompressedPayload("rgb8; jpeg compressed bgr8", np.asarray(data).reshape(-1))


def _payload(kind: str, message: Any) -> Payload:
    if kind == COMPRESSED_TYPE:
        return CompressedPayload(message.format, message.data)
    return RawPayload(
        message.encoding,
        message.height,
        message.width,
        message.step,
        bool(message.is_bigendian),
        message.data,
    )
