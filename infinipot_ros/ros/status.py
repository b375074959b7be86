"""What `~/status` says: a camera's counters and memory as a message."""

from __future__ import annotations

from infinipot_ros.core import CameraStatus
from infinipot_ros.msg import MemoryStatus
from infinipot_ros.ros.conversions import ns_to_stamp

_UINT32_MAX = 2**32 - 1


def status_message(status: CameraStatus, now_ns: int) -> MemoryStatus:
    """Return the message of one camera.

    Args:
        status: counters and memory figures.
        now_ns: the node's clock, integer nanoseconds; sets the frame age.
    """
    memory = status.memory
    newest = memory.newest_stamp_ns
    out = MemoryStatus(camera=status.camera, model=memory.model, policy=memory.policy)
    out.header.stamp = ns_to_stamp(now_ns)
    out.frames_received = status.received
    out.frames_sampled = status.sampled
    out.frames_encoded = status.encoded
    out.frames_dropped = status.dropped
    out.frames_pending = status.pending
    out.blocks = memory.blocks
    out.compressions = memory.compressions
    out.tokens_retained = min(memory.tokens_retained, _UINT32_MAX)
    out.tokens_cap = memory.tokens_cap or 0
    out.bytes_used = memory.bytes_used
    out.bytes_cap = memory.bytes_cap or 0
    out.oldest_stamp = ns_to_stamp(memory.oldest_stamp_ns)
    out.newest_stamp = ns_to_stamp(newest)
    # A clock that jumped backward (a bag that loops under simulated time) makes no negative age.
    out.frame_age = -1.0 if newest is None else max(0.0, (now_ns - newest) * 1e-9)
    out.encode_ms = memory.encode_ms
    out.compress_ms = memory.compress_ms
    return out
