"""Values that pass between the rooms of the package: frames in, answers and figures out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

FinishReason = Literal["stop", "length", "cancelled", "timeout"]

EMBEDDED_MODEL = "roomworld"
"""Name of the model that comes with the package."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One camera image with its capture stamp.

    Attributes:
        image: uint8 RGB, shape ``[height, width, 3]``.
        stamp_ns: capture time in integer nanoseconds (never a float: 64-bit floats lose
            nanoseconds at today's epoch).
        camera: name of the camera, empty where there is one only.
    """

    image: NDArray[np.uint8]
    stamp_ns: int
    camera: str = ""


class Turn(NamedTuple):
    """A question of a dialogue with the answer that was given."""

    question: str
    answer: str


@dataclass(frozen=True)
class Evidence:
    """An interval of the stream on which an answer rests.

    Attributes:
        camera: name of the camera.
        start_ns: first moment, integer nanoseconds.
        end_ns: last moment, integer nanoseconds.
        weight: share of the answer that rests on the interval, 0 to 1.
    """

    camera: str
    start_ns: int
    end_ns: int
    weight: float


@dataclass(frozen=True)
class Answer:
    """What the model said to one question.

    Attributes:
        text: the answer, special tokens removed.
        confidence: mean probability of the answer's tokens, 0 to 1 (0 if none was decoded).
        stamp_ns: stamp of the newest frame that the answer covers, nanoseconds; None if the
            memory was empty.
        tokens_retained: video tokens per layer and head in memory when the question was asked.
        latency_s: seconds from the call to the last token.
        first_token_s: seconds from the call to the first token (0 if there was none).
        n_tokens: tokens decoded, the end-of-answer token not counted.
        finish_reason: ``stop`` (the model ended), ``length`` (token limit), ``cancelled`` or
            ``timeout``.
        evidence: intervals that the answer rests on; may be empty.
    """

    text: str
    confidence: float
    stamp_ns: int | None
    tokens_retained: int
    latency_s: float
    first_token_s: float
    n_tokens: int
    finish_reason: FinishReason
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class MemoryStats:
    """Figures of one engine's memory.

    Attributes:
        model: name of the model, as given by the user.
        policy: name of the compression policy.
        tokens_retained: stored video tokens per layer and KV head.
        tokens_cap: the cap M on them; None for the policy ``full``.
        bytes_used: bytes of the cache that hold something (prefix and video tokens).
        bytes_cap: bytes of the whole preallocated cache with its provenance (prefix + M + query
            reserve); None for the policy ``full``, whose cache grows.
        frames_encoded: frames that entered the memory since the last reset.
        blocks: blocks prefilled since the last reset.
        compressions: compressions since the last reset.
        oldest_stamp_ns: stamp of the oldest frame of which some token is retained; None if empty.
        newest_stamp_ns: stamp of the newest frame in memory; None if empty.
        encode_ms: milliseconds that the last block took, compression included.
        compress_ms: milliseconds that the last compression took (0 before the first).
    """

    model: str
    policy: str
    tokens_retained: int
    tokens_cap: int | None
    bytes_used: int
    bytes_cap: int | None
    frames_encoded: int
    blocks: int
    compressions: int
    oldest_stamp_ns: int | None
    newest_stamp_ns: int | None
    encode_ms: float
    compress_ms: float
