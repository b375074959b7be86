"""From the bytes of a camera message to uint8 RGB, without ROS.

`decode_raw` takes the fields of a `sensor_msgs/Image`, `decode_compressed` those of a
`sensor_msgs/CompressedImage`. Both return a new contiguous array and raise `FrameError` for
anything that cannot be read, naming the field and the value that clash.

Rules where the encoding's name leaves a choice:
- ``8UC1``, ``8UC3``, ``8UC4`` are OpenCV's types and read as mono8, bgr8, bgra8.
- 16-bit colour and ``mono16`` are scaled by 255 / 65535, the full range of the container.
- ``16UC1`` is depth in millimetres and ``32FC1`` depth in metres (REP 118). Depth becomes grey:
  near is bright, ``DEPTH_RANGE_M`` and farther is black, and so is an unknown depth (0, NaN,
  infinite).
- YUV is limited-range BT.601, what USB and CSI cameras deliver.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PILImage

from infinipot_ros.core.errors import FrameError

DEPTH_RANGE_M = 10.0
"""Depth that is drawn black, metres; half of it is mid-grey."""

MAX_PIXELS = 1 << 27
"""Largest image that is decoded; a bigger width x height is a damaged message."""

MAX_ENCODED_PIXELS = 1 << 25
"""Largest compressed image that is decoded: 8K video has fewer."""

RGB = NDArray[np.uint8]


@dataclass(frozen=True)
class _Packed:
    """Samples of one pixel next to each other; ``order`` picks red, green and blue."""

    dtype: str
    channels: int
    order: tuple[int, ...]


@dataclass(frozen=True)
class _Yuv422:
    """Two pixels in four bytes; ``code`` is OpenCV's conversion."""

    code: str


@dataclass(frozen=True)
class _SemiPlanar:
    """A full Y plane, then a plane of interleaved chroma."""

    chroma_rows: float
    chroma_bytes: float
    v_first: bool


@dataclass(frozen=True)
class _Bayer:
    """A colour mosaic; ``code`` is OpenCV's conversion."""

    dtype: str
    code: str


@dataclass(frozen=True)
class _Depth:
    """One distance a pixel, ``metres`` each unit."""

    dtype: str
    metres: float


_Layout = _Packed | _Yuv422 | _SemiPlanar | _Bayer | _Depth

_GREY, _RGB, _BGR = (0, 0, 0), (0, 1, 2), (2, 1, 0)
_UYVY, _YUYV = _Yuv422("COLOR_YUV2RGB_UYVY"), _Yuv422("COLOR_YUV2RGB_YUY2")

# ROS names the first row of the mosaic, OpenCV's classic names the second and third pixel of the
# second row: bayer_rggb8 is BayerBG.
_BAYER = {
    f"bayer_{ros}{bits}": _Bayer(f"u{bits // 8}", f"COLOR_Bayer{cv}2RGB")
    for ros, cv in (("rggb", "BG"), ("bggr", "RG"), ("gbrg", "GR"), ("grbg", "GB"))
    for bits in (8, 16)
}

ENCODINGS: Mapping[str, _Layout] = {
    "rgb8": _Packed("u1", 3, _RGB),
    "bgr8": _Packed("u1", 3, _BGR),
    "rgba8": _Packed("u1", 4, _RGB),
    "bgra8": _Packed("u1", 4, _BGR),
    "mono8": _Packed("u1", 1, _GREY),
    "8uc1": _Packed("u1", 1, _GREY),
    "8uc3": _Packed("u1", 3, _BGR),
    "8uc4": _Packed("u1", 4, _BGR),
    "rgb16": _Packed("u2", 3, _RGB),
    "bgr16": _Packed("u2", 3, _BGR),
    "rgba16": _Packed("u2", 4, _RGB),
    "bgra16": _Packed("u2", 4, _BGR),
    "mono16": _Packed("u2", 1, _GREY),
    "16uc3": _Packed("u2", 3, _BGR),
    "16uc4": _Packed("u2", 4, _BGR),
    "16uc1": _Depth("u2", 0.001),
    "32fc1": _Depth("f4", 1.0),
    "yuv422": _UYVY,
    "uyvy": _UYVY,
    "yuv422_uyvy": _UYVY,
    "yuv422_yuy2": _YUYV,
    "yuyv": _YUYV,
    "yuy2": _YUYV,
    "nv12": _SemiPlanar(0.5, 1.0, v_first=False),
    "nv21": _SemiPlanar(0.5, 1.0, v_first=True),
    "nv24": _SemiPlanar(1.0, 2.0, v_first=False),
    **_BAYER,
}
"""Encodings that can be read, in lower case."""


def decode_raw(
    encoding: str,
    height: int,
    width: int,
    step: int,
    is_bigendian: bool,
    data: bytes | bytearray | memoryview | NDArray[np.uint8],
) -> RGB:
    """Decode an uncompressed image.

    Args:
        encoding: name as in `sensor_msgs/image_encodings`, in any case; keys of `ENCODINGS`.
        height: rows.
        width: columns.
        step: bytes from one row to the next, padding included.
        is_bigendian: byte order of samples wider than a byte.
        data: the buffer, anything that exports one byte after the other.

    Returns:
        uint8 RGB, shape ``[height, width, 3]``, a copy.

    Raises:
        FrameError: unknown encoding, or sizes that contradict each other or the buffer.
    """
    layout = check_layout(encoding, height, width, step, len(data))
    buffer = np.frombuffer(data, np.uint8)
    if isinstance(layout, _SemiPlanar):
        return _from_semi_planar(layout, buffer, height, width, step)
    row_bytes = _row_bytes(layout, width)
    rows = _rows(buffer, height, step, row_bytes)
    if isinstance(layout, _Yuv422):
        return _cv_convert(rows.reshape(height, width, 2), layout.code)
    order = ">" if is_bigendian else "<"
    samples = np.ascontiguousarray(rows).view(order + layout.dtype)
    if isinstance(layout, _Packed):
        pixels = samples.reshape(height, width, layout.channels)
        return np.ascontiguousarray(_to_bytes(pixels)[..., layout.order])
    if isinstance(layout, _Bayer):
        return _cv_convert(np.ascontiguousarray(_to_bytes(samples)), layout.code)
    return depth_to_grey(samples.astype(np.float32) * np.float32(layout.metres))


def check_layout(encoding: str, height: int, width: int, step: int, size: int) -> _Layout:
    """Check that the fields of an uncompressed image agree with each other.

    Args:
        encoding: name as in `sensor_msgs/image_encodings`.
        height: rows.
        width: columns.
        step: bytes from one row to the next.
        size: bytes of data.

    Raises:
        FrameError: they do not; the message says which and what was expected.
    """
    layout = ENCODINGS.get(encoding.strip().lower())
    if layout is None:
        raise FrameError(f"encoding {encoding!r} is not supported (known: {', '.join(ENCODINGS)})")
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise FrameError(
            f"size {width}x{height} px cannot be used (1 to {MAX_PIXELS} pixels expected)"
        )
    odd_width = isinstance(layout, (_Yuv422, _SemiPlanar)) and layout != ENCODINGS["nv24"]
    if odd_width and width % 2:
        raise FrameError(f"encoding {encoding!r} needs an even width, got {width}")
    if isinstance(layout, _SemiPlanar) and layout.chroma_rows < 1 and height % 2:
        raise FrameError(f"encoding {encoding!r} needs an even height, got {height}")
    if isinstance(layout, _Bayer) and (width < 2 or height < 2):
        raise FrameError(f"encoding {encoding!r} needs at least 2x2 px, got {width}x{height}")
    row_bytes = _row_bytes(layout, width)
    if step < row_bytes:
        raise FrameError(
            f"step {step} is smaller than a row of {width} px {encoding} ({row_bytes} bytes)"
        )
    # The padding behind the last row is often left out.
    needed = _buffer_bytes(layout, height, step, row_bytes)
    if size < needed:
        raise FrameError(
            f"data has {size} bytes, {needed} expected for {width}x{height} px {encoding} "
            f"with step {step}"
        )
    return layout


def decode_compressed(format: str, data: bytes | bytearray | memoryview | NDArray[np.uint8]) -> RGB:
    """Decode a compressed image: JPEG, PNG and whatever else OpenCV reads, or `compressedDepth`.

    Args:
        format: the message's format field. Drivers differ: ``jpeg``, ``rgb8; jpeg compressed
            bgr8``, ``16UC1; compressedDepth png``. It is consulted for depth and for
            channels that were swapped before encoding; the codec is recognised from the data.
        data: the encoded bytes.

    Returns:
        uint8 RGB, shape ``[height, width, 3]``, a copy. Orientation tags are ignored, as in a
        raw image.

    Raises:
        FrameError: no data, a video codec, or data that cannot be decoded.
    """
    import cv2

    name, _, transport = (part.strip().lower() for part in format.partition(";"))
    if len(data) == 0:
        raise FrameError(f"compressed image of format {format!r} has no data")
    buffer = np.frombuffer(data, np.uint8)
    inverse_depth = None
    if "compresseddepth" in transport or name == "compresseddepth":
        if len(buffer) <= _DEPTH_HEADER.size:
            raise FrameError(f"compressed depth has {len(buffer)} bytes, not even a whole header")
        _, scale, offset = _DEPTH_HEADER.unpack_from(buffer.tobytes())
        inverse_depth = (scale, offset) if name == "32fc1" else None
        buffer = buffer[_DEPTH_HEADER.size :]
    _check_encoded_size(buffer, format)
    is_depth = name in ("16uc1", "32fc1") or inverse_depth is not None
    flags = cv2.IMREAD_UNCHANGED if is_depth else cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(buffer, flags)
    except cv2.error as error:
        raise FrameError(f"compressed image of format {format!r}: {error}") from error
    if image is None:
        raise FrameError(
            f"compressed image of format {format!r} ({len(buffer)} bytes, begins with "
            f"{bytes(buffer[:4]).hex(' ')}) cannot be decoded; JPEG and PNG can"
        )
    if is_depth:
        return depth_to_grey(_compressed_depth_metres(image, name, inverse_depth))
    # imdecode yields BGR. "compressed rgb8" says that the encoder was handed RGB as if it were
    # BGR, so that red and blue lie swapped in the file.
    swapped = "compressed rgb" in transport
    return np.array(image if swapped else image[..., ::-1], dtype=np.uint8, order="C")


def _check_encoded_size(buffer: NDArray[np.uint8], format: str) -> None:
    """Refuse an image by its header: a few kilobytes can decode to gigabytes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PILImage.DecompressionBombWarning)
            width, height = PILImage.open(io.BytesIO(buffer.tobytes())).size
    except PILImage.DecompressionBombError as error:
        raise FrameError(f"compressed image of format {format!r}: {error}") from error
    except Exception:  # a header that Pillow cannot read is left to OpenCV
        return
    if width * height > MAX_ENCODED_PIXELS:
        raise FrameError(
            f"compressed image of format {format!r} has {width}x{height} px; at most "
            f"{MAX_ENCODED_PIXELS} are decoded"
        )


def depth_to_grey(metres: NDArray[np.float32]) -> RGB:
    """Draw depth as grey by a fixed rule, so that equal distances look equal in every frame.

    Args:
        metres: depth ``[height, width]``; 0, negative, NaN and infinity mean unknown.

    Returns:
        uint8 ``[height, width, 3]``: 255 at the camera, 0 from `DEPTH_RANGE_M` on and if unknown.
    """
    known = np.isfinite(metres) & (metres > 0)
    near = 1.0 - np.clip(np.where(known, metres, DEPTH_RANGE_M), 0, DEPTH_RANGE_M) / DEPTH_RANGE_M
    grey = np.rint(255.0 * near).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)


# compressed_depth_image_transport: an int32 format tag and two float32 of its inverse-depth coding.
_DEPTH_HEADER = struct.Struct("<iff")


def _compressed_depth_metres(
    image: NDArray[Any], name: str, inverse_depth: tuple[float, float] | None
) -> NDArray[np.float32]:
    if image.ndim != 2:
        raise FrameError(f"a depth image has one channel, this one decodes to {image.shape}")
    values: NDArray[np.float32] = image.astype(np.float32)
    if inverse_depth is None:
        values *= np.float32(1.0 if name == "32fc1" else 0.001)
        return values
    scale, offset = inverse_depth
    with np.errstate(divide="ignore", invalid="ignore"):
        metres = np.where(values > 0, np.float32(scale) / (values - np.float32(offset)), np.nan)
    result: NDArray[np.float32] = metres.astype(np.float32)
    return result


def _row_bytes(layout: _Layout, width: int) -> int:
    """Bytes of a row without padding; of the Y plane for planar layouts."""
    if isinstance(layout, _Packed):
        return width * layout.channels * np.dtype(layout.dtype).itemsize
    if isinstance(layout, (_Bayer, _Depth)):
        return width * np.dtype(layout.dtype).itemsize
    return width * 2 if isinstance(layout, _Yuv422) else width


def _buffer_bytes(layout: _Layout, height: int, step: int, row_bytes: int) -> int:
    if isinstance(layout, _SemiPlanar):
        chroma_step = int(step * layout.chroma_bytes)
        chroma_rows = int(height * layout.chroma_rows)
        return (
            height * step + (chroma_rows - 1) * chroma_step + int(row_bytes * layout.chroma_bytes)
        )
    return (height - 1) * step + row_bytes


def _rows(buffer: RGB, height: int, step: int, row_bytes: int) -> RGB:
    """View ``height`` rows of ``row_bytes`` that lie ``step`` bytes apart."""
    return np.lib.stride_tricks.as_strided(
        buffer, shape=(height, row_bytes), strides=(step, 1), writeable=False
    )


def _to_bytes(samples: NDArray[Any]) -> RGB:
    """Scale 16-bit samples to 8 bits, rounding to nearest; 8-bit samples pass through."""
    if samples.dtype.itemsize == 1:
        return samples
    return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _from_semi_planar(layout: _SemiPlanar, buffer: RGB, height: int, width: int, step: int) -> RGB:
    luma = _rows(buffer, height, step, width)
    chroma_step = int(step * layout.chroma_bytes)
    chroma_rows = int(height * layout.chroma_rows)
    chroma = _rows(
        buffer[height * step :], chroma_rows, chroma_step, int(width * layout.chroma_bytes)
    )
    if layout.chroma_rows == 1.0:
        return _yuv444_to_rgb(luma, chroma.reshape(height, width, 2))
    code = "COLOR_YUV2RGB_NV21" if layout.v_first else "COLOR_YUV2RGB_NV12"
    return _cv_convert(np.concatenate([luma, chroma]), code)


def _yuv444_to_rgb(luma: RGB, chroma: RGB) -> RGB:
    """Convert limited-range BT.601 with full-resolution chroma (OpenCV has no NV24)."""
    y = (luma.astype(np.float32) - 16.0) * (255.0 / 219.0)
    u, v = (chroma[..., i].astype(np.float32) - 128.0 for i in (0, 1))
    scale = 255.0 / 224.0
    red = y + 1.402 * scale * v
    green = y - (0.344136 * u + 0.714136 * v) * scale
    blue = y + 1.772 * scale * u
    rgb = np.stack([red, green, blue], axis=-1)
    return np.asarray(np.rint(rgb.clip(0, 255)), dtype=np.uint8)


def _cv_convert(image: NDArray[Any], code: str) -> RGB:
    import cv2

    return cast(RGB, cv2.cvtColor(np.ascontiguousarray(image), getattr(cv2, code)))
