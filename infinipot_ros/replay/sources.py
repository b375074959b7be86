"""What a camera can be played from: RoomWorld, a video file, a bag or a folder of images.

Each source yields images with the time at which they are due, so that one loop can publish them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.replay.payload import Payload, RawPayload

_NS = 1_000_000_000
_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm"}
DEFAULT_RATE = 10.0
"""Images per second of a source that has no rate of its own."""


class SourceError(ValueError):
    """A source that cannot be played; the message says what was expected."""


@dataclass(frozen=True, eq=False)
class TimedImage:
    """An image and when it is due, integer nanoseconds after the first one."""

    time_ns: int
    payload: Payload


class Source(ABC):
    """A finite or endless sequence of images; every iteration starts from the beginning."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def __iter__(self) -> Iterator[TimedImage]:
        """Yield the images with their times, first at 0."""

    @property
    @abstractmethod
    def period_ns(self) -> int:
        """Nanoseconds from the last image to the first one of the next round."""


class PacedSource(Source):
    """Images that come at a steady rate.

    Args:
        name: what the source is, for the log.
        rate: images per second.
    """

    def __init__(self, name: str, rate: float) -> None:
        super().__init__(name)
        if not rate > 0:
            raise SourceError(f"rate is {rate}; it must be above 0 images per second")
        self.rate = rate

    @property
    def period_ns(self) -> int:
        """Nanoseconds from one image to the next."""
        return round(_NS / self.rate)

    def __iter__(self) -> Iterator[TimedImage]:
        for index, pixels in enumerate(self._pixels()):
            time_ns = round(index * _NS / self.rate)
            yield TimedImage(time_ns, RawPayload.from_pixels(pixels, "rgb8"))

    @abstractmethod
    def _pixels(self) -> Iterator[NDArray[np.uint8]]:
        """Yield uint8 RGB images ``[height, width, 3]``."""


class RoomWorldSource(PacedSource):
    """The synthetic robot world, endless.

    Args:
        seed: world.
        rate: images per second.
        tour_s: seconds of the tour, after which the robot meets no more objects.
        regime: what the camera's life is like.
    """

    def __init__(self, seed: int, rate: float, tour_s: float, regime: str) -> None:
        super().__init__(f"RoomWorld (seed {seed}, {regime} of {tour_s:g} s)", rate)
        from infinipot_ros.roomworld import RoomWorld

        self._world = RoomWorld(seed=seed, tour_s=tour_s, regime=regime)

    def _pixels(self) -> Iterator[NDArray[np.uint8]]:
        for frame in self._world.frames(fps=self.rate):
            yield frame.image


class VideoSource(PacedSource):
    """A video file, at its own rate or another.

    Args:
        path: the file.
        rate: images per second; None takes the file's.
    """

    def __init__(self, path: Path, rate: float | None) -> None:
        from infinipot_ros.replay.video import VideoFile

        self._file = VideoFile(path)
        super().__init__(str(path), rate or self._file.fps)

    def _pixels(self) -> Iterator[NDArray[np.uint8]]:
        return iter(self._file)


class FolderSource(PacedSource):
    """The pictures of a folder, in the order of their names.

    Args:
        path: the folder.
        rate: images per second.
    """

    def __init__(self, path: Path, rate: float) -> None:
        super().__init__(str(path), rate)
        self._files = sorted(item for item in path.iterdir() if item.suffix.lower() in _PICTURES)
        if not self._files:
            kinds = ", ".join(sorted(_PICTURES))
            raise SourceError(
                f"{path} is no bag (no metadata.yaml) and holds no pictures ({kinds})"
            )

    def _pixels(self) -> Iterator[NDArray[np.uint8]]:
        import cv2

        for file in self._files:
            picture = cv2.imread(str(file), cv2.IMREAD_COLOR)
            if picture is None:
                raise SourceError(f"{file} cannot be read as a picture")
            yield np.ascontiguousarray(picture[..., ::-1])


class BagSource(Source):
    """One image topic of a bag, as recorded: encoding, row padding and compression are kept.

    Args:
        path: bag folder.
        topic: image topic; None takes the first one.
        rate: images per second; None keeps the recorded times.

    Raises:
        BagError: the folder is no bag or has no such topic.
    """

    def __init__(self, path: Path, topic: str | None, rate: float | None) -> None:
        from infinipot_ros.replay.bag import ImageBag

        with ImageBag(path) as bag:
            first = next(bag.images(topic), None)
        if first is None:
            raise SourceError(f"{path}: the image topic has no messages")
        super().__init__(f"{path} {first.topic}")
        self._path, self._topic, self._rate = path, first.topic, rate
        self._last_period_ns = round(_NS / (rate or DEFAULT_RATE))

    @property
    def period_ns(self) -> int:
        """Nanoseconds between the last two images, or at the rate that was asked for."""
        return self._last_period_ns

    def __iter__(self) -> Iterator[TimedImage]:
        from infinipot_ros.replay.bag import ImageBag

        first_ns: int | None = None
        time_ns = 0
        with ImageBag(self._path) as bag:
            for index, image in enumerate(bag.images(self._topic)):
                first_ns = image.stamp_ns if first_ns is None else first_ns
                before_ns = time_ns
                if self._rate is None:
                    # Recorded out of order, or by a clock that was set back: never step back.
                    time_ns = max(image.stamp_ns - first_ns, before_ns)
                    self._last_period_ns = max(1, time_ns - before_ns)
                else:
                    time_ns = round(index * _NS / self._rate)
                yield TimedImage(time_ns, image.payload)


def open_source(
    source: str,
    *,
    rate: float | None = None,
    seed: int = 0,
    tour_s: float = 120.0,
    regime: str = "tour",
    bag_topic: str | None = None,
) -> Source:
    """Open what the user named.

    Args:
        source: ``roomworld``, a video file, a bag folder or a folder of pictures.
        rate: images per second; None takes the source's own, else `DEFAULT_RATE`.
        seed: world of ``roomworld``.
        tour_s: seconds of the tour of ``roomworld``.
        regime: of ``roomworld``, see `infinipot_ros.roomworld.REGIMES`.
        bag_topic: image topic of a bag; None takes the first one.

    Raises:
        SourceError, BagError, VideoError: there is nothing of the kind.
        ValueError: ``roomworld`` has no such regime, or the tour takes no time.
    """
    if source == "roomworld":
        return RoomWorldSource(seed, rate or DEFAULT_RATE, tour_s, regime)
    path = Path(source)
    if path.is_file():
        # A single storage file is often named where its folder is meant.
        if path.suffix in (".mcap", ".db3") and (path.parent / "metadata.yaml").is_file():
            return BagSource(path.parent, bag_topic, rate)
        return VideoSource(path, rate)
    if (path / "metadata.yaml").is_file():
        return BagSource(path, bag_topic, rate)
    if path.is_dir():
        return FolderSource(path, rate or DEFAULT_RATE)
    raise SourceError(
        f"source {source!r} is neither 'roomworld' nor an existing video file, bag or folder"
    )
