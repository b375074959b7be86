"""The status message: counters as they are, figures that have no value yet marked as such."""

from __future__ import annotations

from builtin_interfaces.msg import Time

from infinipot_ros.core import CameraStatus, MemoryStats
from infinipot_ros.ros.status import status_message

SECOND = 1_000_000_000


def make(**changes):
    """Return the status of a camera whose memory has been compressed."""
    memory = {
        "model": "roomworld", "policy": "infinipot_v", "tokens_retained": 252, "tokens_cap": 288,
        "bytes_used": 1000, "bytes_cap": 2000, "frames_encoded": 40, "blocks": 5, "compressions": 1,
        "oldest_stamp_ns": 10 * SECOND + 7, "newest_stamp_ns": 30 * SECOND, "encode_ms": 12.5,
        "compress_ms": 1.5,
    }  # fmt: skip
    memory |= changes
    return CameraStatus(
        camera="front", received=200, sampled=44, encoded=40, dropped=3, pending=1,
        drops_by_reason={"malformed": 3}, memory=MemoryStats(**memory), stopped=False,
    )  # fmt: skip


def test_everything_is_carried_over():
    out = status_message(make(), 32 * SECOND + 5)
    assert out.header.stamp == Time(sec=32, nanosec=5)
    assert (out.camera, out.model, out.policy) == ("front", "roomworld", "infinipot_v")
    assert (out.frames_received, out.frames_sampled, out.frames_encoded) == (200, 44, 40)
    assert (out.frames_dropped, out.frames_pending) == (3, 1)
    assert (out.blocks, out.compressions) == (5, 1)
    assert (out.tokens_retained, out.tokens_cap) == (252, 288)
    assert (out.bytes_used, out.bytes_cap) == (1000, 2000)
    assert out.oldest_stamp == Time(sec=10, nanosec=7)
    assert out.newest_stamp == Time(sec=30)
    assert 2.0 <= out.frame_age < 2.1
    assert (out.encode_ms, out.compress_ms) == (12.5, 1.5)


def test_an_empty_memory_has_zero_stamps_and_no_age():
    out = status_message(make(oldest_stamp_ns=None, newest_stamp_ns=None), SECOND)
    assert out.oldest_stamp == out.newest_stamp == Time()
    assert out.frame_age == -1.0


def test_a_memory_without_a_cap_says_zero():
    out = status_message(make(policy="full", tokens_cap=None, bytes_cap=None), SECOND)
    assert (out.tokens_cap, out.bytes_cap) == (0, 0)


def test_a_clock_that_was_set_back_makes_no_negative_age():
    assert status_message(make(), SECOND).frame_age == 0.0
