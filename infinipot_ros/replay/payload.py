"""An image as it travels: the fields of a message, without ROS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RawPayload:
    """Fields of a `sensor_msgs/Image`.

    Attributes:
        encoding: name as in `sensor_msgs/image_encodings`.
        height: rows.
        width: columns.
        step: bytes from one row to the next.
        is_bigendian: byte order of samples wider than a byte.
        data: uint8, flat.
    """

    encoding: str
    height: int
    width: int
    step: int
    is_bigendian: bool
    data: NDArray[np.uint8]

    @classmethod
    def from_pixels(cls, pixels: NDArray[np.uint8], encoding: str) -> RawPayload:
        """Wrap 8-bit pixels ``[height, width, channels]`` without padding."""
        height, width, channels = pixels.shape
        flat = np.ascontiguousarray(pixels).reshape(-1)
        return cls(encoding, height, width, width * channels, False, flat)

    def to_rgb(self) -> NDArray[np.uint8]:
        """Decode to uint8 RGB ``[height, width, 3]``.

        Raises:
            FrameError: the fields contradict each other or the encoding is unknown.
        """
        if self.encoding == "rgb8" and self.step == 3 * self.width:
            return self.data[: self.height * self.step].reshape(self.height, self.width, 3)
        from infinipot_ros.core.images import decode_raw

        return decode_raw(
            self.encoding, self.height, self.width, self.step, self.is_bigendian, self.data
        )

    def describe(self) -> str:
        """Return size and encoding in words."""
        return f"{self.width}x{self.height} {self.encoding}"


@dataclass(frozen=True, eq=False)
class CompressedPayload:
    """Fields of a `sensor_msgs/CompressedImage`.

    Attributes:
        format: the message's format field.
        data: uint8, the encoded bytes.
    """

    format: str
    data: NDArray[np.uint8]

    def to_rgb(self) -> NDArray[np.uint8]:
        """Decode to uint8 RGB ``[height, width, 3]``.

        Raises:
            FrameError: the data cannot be decoded.
        """
        from infinipot_ros.core.images import decode_compressed

        return decode_compressed(self.format, self.data)

    def describe(self) -> str:
        """Return the format in words."""
        return f"compressed ({self.format})"


Payload = RawPayload | CompressedPayload
