"""Image decoding: every layout, padding and byte order, and what is refused."""

from __future__ import annotations

import re
import struct

import cv2
import numpy as np
import pytest

from infinipot_ros.core import FrameError
from infinipot_ros.core.images import (
    DEPTH_RANGE_M,
    ENCODINGS,
    decode_compressed,
    decode_raw,
    depth_to_grey,
)

HEIGHT, WIDTH = 6, 8


@pytest.fixture
def rgb():
    """Return smooth colours, so that sub-sampled chroma loses little."""
    rows, cols = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([40 + 20 * cols, 200 - 18 * rows, 60 + 8 * (rows + cols)], -1).astype(np.uint8)


def packed(rgb, order, extra=0, bits=8):
    """Lay out channels in an order, with opaque extra ones, as 8 or 16 bits."""
    pixels = rgb[..., order]
    if extra:
        pixels = np.concatenate([pixels, np.full_like(pixels[..., :1], 255)], axis=-1)
    return pixels if bits == 8 else pixels.astype(np.uint16) * 257


def decode(encoding, rows, *, padding=0, bigendian=False, cut=0):
    """Decode rows of samples after padding each of them with junk."""
    if bigendian:
        rows = rows.astype(rows.dtype.newbyteorder(">"))
    lines = [row.tobytes() + b"\xaa" * padding for row in rows]
    data = b"".join(lines)
    step = len(lines[0])
    return decode_raw(encoding, HEIGHT, WIDTH, step, bigendian, data[: len(data) - cut])


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(
    "encoding, order, extra, bits",
    [
        ("rgb8", [0, 1, 2], 0, 8),
        ("bgr8", [2, 1, 0], 0, 8),
        ("rgba8", [0, 1, 2], 1, 8),
        ("bgra8", [2, 1, 0], 1, 8),
        ("8UC3", [2, 1, 0], 0, 8),
        ("8UC4", [2, 1, 0], 1, 8),
        ("rgb16", [0, 1, 2], 0, 16),
        ("bgr16", [2, 1, 0], 0, 16),
        ("rgba16", [0, 1, 2], 1, 16),
        ("bgra16", [2, 1, 0], 1, 16),
    ],
)
def test_colour_comes_back_exactly(rgb, encoding, order, extra, bits, padding):
    rows = packed(rgb, order, extra, bits)
    for bigendian in [False] if bits == 8 else [False, True]:
        out = decode(encoding, rows, padding=padding, bigendian=bigendian)
        assert out.dtype == np.uint8
        assert out.flags["C_CONTIGUOUS"]
        np.testing.assert_array_equal(out, rgb)


@pytest.mark.parametrize("encoding", ["mono8", "8UC1"])
def test_grey_becomes_three_equal_channels(rgb, encoding):
    np.testing.assert_array_equal(decode(encoding, rgb[..., 0], padding=3), rgb[..., [0, 0, 0]])


def test_mono16_is_scaled_by_the_whole_container():
    values = np.array([[0, 128, 129, 257, 32768, 65534, 65535, 385]] * HEIGHT, np.uint16)
    for bigendian in (False, True):
        out = decode("mono16", values, bigendian=bigendian)
        np.testing.assert_array_equal(out[0, :, 0], np.rint(values[0] / 257.0))


def test_depth_is_drawn_by_distance_alike_in_metres_and_millimetres():
    metres = np.array([[0.0, 0.001, 1.0, 2.5, 5.0, 9.999, 10.0, 40.0]] * HEIGHT, np.float32)
    expected = [0, 255, 230, 191, 128, 0, 0, 0]
    out = decode("32FC1", metres)
    np.testing.assert_allclose(out[0, :, 0], expected, atol=1)
    millimetres = np.rint(metres * 1000).astype(np.uint16)
    np.testing.assert_array_equal(decode("16UC1", millimetres, bigendian=True), out)


def test_unknown_depth_is_black():
    out = depth_to_grey(np.array([[np.nan, np.inf, -np.inf, -1.0, 0.0]], np.float32))
    assert not out.any()
    assert DEPTH_RANGE_M == 10.0


@pytest.mark.parametrize(
    "encoding, code",
    [
        ("yuv422", cv2.COLOR_RGB2YUV_UYVY),
        ("uyvy", cv2.COLOR_RGB2YUV_UYVY),
        ("yuv422_yuy2", cv2.COLOR_RGB2YUV_YUY2),
        ("yuyv", cv2.COLOR_RGB2YUV_YUY2),
    ],
)
def test_yuv422_keeps_its_colours(rgb, encoding, code):
    rows = cv2.cvtColor(rgb, code)
    np.testing.assert_allclose(decode(encoding, rows, padding=6).astype(int), rgb, atol=12)


def semi_planar(rgb, *, v_first=False, full=False, padding=0):
    """Encode NV12, NV21 or NV24 in limited-range BT.601."""
    weights = (
        np.array([[65.481, 128.553, 24.966], [-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]])
        / 255.0
    )
    yuv = rgb.astype(float) @ weights.T + [16, 128, 128]
    luma, chroma = yuv[..., 0], yuv[..., 1:]
    if not full:
        chroma = chroma.reshape(HEIGHT // 2, 2, WIDTH // 2, 2, 2).mean(axis=(1, 3))
    chroma = (chroma[..., ::-1] if v_first else chroma).reshape(len(chroma), -1)
    pad = [(0, 0), (0, padding)]
    chroma_pad = [(0, 0), (0, 2 * padding if full else padding)]
    planes = [np.pad(np.rint(luma), pad), np.pad(np.rint(chroma), chroma_pad)]
    return b"".join(plane.astype(np.uint8).tobytes() for plane in planes)


@pytest.mark.parametrize("padding", [0, 4])
@pytest.mark.parametrize(
    "encoding, options", [("nv12", {}), ("nv21", {"v_first": True}), ("nv24", {"full": True})]
)
def test_semi_planar_yuv_keeps_its_colours(rgb, encoding, options, padding):
    data = semi_planar(rgb, padding=padding, **options)
    out = decode_raw(encoding, HEIGHT, WIDTH, WIDTH + padding, False, data)
    np.testing.assert_allclose(out.astype(int), rgb, atol=3 if encoding == "nv24" else 14)


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize("bits", [8, 16])
def test_bayer_mosaics_keep_their_colours(pattern, bits):
    colour = np.array([200, 120, 40], np.uint8)
    channel = {"r": 0, "g": 1, "b": 2}
    tile = np.array([colour[channel[letter]] for letter in pattern], np.uint8).reshape(2, 2)
    rows = np.tile(tile, (HEIGHT // 2, WIDTH // 2))
    rows = rows if bits == 8 else rows.astype(np.uint16) * 257
    out = decode(f"bayer_{pattern}{bits}", rows, padding=2)
    np.testing.assert_allclose(out[2:-2, 2:-2].reshape(-1, 3), [colour] * 8, atol=1)


def test_the_padding_of_the_last_row_may_be_missing(rgb):
    np.testing.assert_array_equal(decode("rgb8", rgb, padding=7, cut=7), rgb)


def test_the_result_is_a_copy(rgb):
    data = bytearray(rgb.tobytes())
    out = decode_raw("rgb8", HEIGHT, WIDTH, 3 * WIDTH, False, data)
    data[:] = bytes(len(data))
    np.testing.assert_array_equal(out, rgb)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"encoding": "rgb9"}, ["'rgb9'", "rgb8"]),
        ({"width": 0}, ["0x6"]),
        ({"height": 2**31, "width": 2**31}, ["2147483648x2147483648"]),
        ({"step": 23}, ["step 23", "24 bytes"]),
        ({"step": 0}, ["step 0", "24 bytes"]),
        ({"step": 25}, ["144 bytes", "149"]),
        ({"height": 7}, ["144 bytes", "168"]),
        ({"encoding": "yuyv", "width": 7}, ["even width", "7"]),
        ({"encoding": "nv12", "height": 5}, ["even height", "5"]),
        ({"encoding": "bayer_rggb8", "height": 1}, ["2x2"]),
    ],
)
def test_contradictions_are_refused_by_field_and_value(fields, words):
    call = {"encoding": "rgb8", "height": HEIGHT, "width": WIDTH, "step": 3 * WIDTH} | fields
    with pytest.raises(FrameError) as caught:
        decode_raw(**call, is_bigendian=False, data=bytes(HEIGHT * WIDTH * 3))
    assert all(re.search(re.escape(word), str(caught.value)) for word in words), caught.value


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_every_encoding_refuses_an_empty_buffer(encoding):
    with pytest.raises(FrameError, match="0 bytes"):
        decode_raw(encoding, HEIGHT, WIDTH, 64, False, b"")


def encoded(image, extension):
    return cv2.imencode(extension, image)[1].tobytes()


@pytest.mark.parametrize("format", ["png", "rgb8; png compressed bgr8", "PNG", ""])
def test_png_is_exact_whatever_the_driver_calls_it(rgb, format):
    np.testing.assert_array_equal(decode_compressed(format, encoded(rgb[..., ::-1], ".png")), rgb)


def test_jpeg_keeps_colour(rgb):
    large = cv2.resize(rgb, (64, 48))
    data = encoded(large[..., ::-1], ".jpg")
    np.testing.assert_allclose(decode_compressed("jpeg", data).astype(int), large, atol=12)


def test_channels_that_the_encoder_swapped_are_swapped_back(rgb):
    data = encoded(rgb, ".png")  # handed RGB where the encoder takes BGR
    np.testing.assert_array_equal(decode_compressed("rgb8; png compressed rgb8", data), rgb)


def test_compressed_grey_becomes_three_equal_channels(rgb):
    out = decode_compressed("mono8; png compressed ", encoded(rgb[..., 0], ".png"))
    np.testing.assert_array_equal(out, rgb[..., [0, 0, 0]])


def test_compressed_depth_equals_raw_depth():
    metres = np.array([[0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 9.0, 12.0]] * HEIGHT, np.float32)
    millimetres = np.rint(1000 * metres).astype(np.uint16)
    header = struct.pack("<iff", 0, 0.0, 0.0)
    raw = depth_to_grey(metres)
    for format in ("16UC1; compressedDepth", "16UC1; compressedDepth png"):
        out = decode_compressed(format, header + encoded(millimetres, ".png"))
        np.testing.assert_array_equal(out, raw)
    np.testing.assert_array_equal(
        decode_compressed("16UC1; png compressed ", encoded(millimetres, ".png")), raw
    )
    scale, offset = 1000.0, 5.0  # inverse depth: value = scale / depth + offset, 0 where unknown
    with np.errstate(divide="ignore"):
        inverse = np.where(metres > 0, scale / metres + offset, 0).astype(np.uint16)
    data = struct.pack("<iff", 0, scale, offset) + encoded(inverse, ".png")
    out = decode_compressed("32FC1; compressedDepth png", data)
    np.testing.assert_allclose(out.astype(int), raw, atol=2)


@pytest.mark.parametrize(
    "format, data, words",
    [
        ("jpeg", b"", ["'jpeg'", "no data"]),
        ("jpeg", b"not a picture at all", ["'jpeg'", "6e 6f 74 20"]),
        ("h264", bytes(64), ["'h264'", "JPEG"]),
        ("16UC1; compressedDepth", bytes(8), ["8 bytes", "header"]),
        ("16UC1; compressedDepth rvl", bytes(64), ["rvl"]),
    ],
)
def test_compressed_data_that_cannot_be_read_is_refused(format, data, words):
    with pytest.raises(FrameError) as caught:
        decode_compressed(format, data)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_truncated_jpeg_is_decoded_or_refused_but_never_crashes(rgb):
    data = encoded(cv2.resize(rgb, (64, 48)), ".jpg")
    for length in range(1, len(data), 37):
        try:
            out = decode_compressed("jpeg", data[:length])
        except FrameError:
            continue
        assert out.shape == (48, 64, 3)


@pytest.mark.parametrize("kind", [".png", ".jpg"])
def test_a_small_file_that_would_decode_to_gigabytes_is_refused_by_its_header(kind):
    data = cv2.imencode(kind, np.zeros((6000, 6000), np.uint8))[1].tobytes()
    assert len(data) < 1_000_000
    with pytest.raises(FrameError, match="6000x6000 px; at most"):
        decode_compressed("png", data)
