"""Move the camera within a scene and expose its images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.people import Person, draw_person
from infinipot_ros.roomworld.scenes import IMAGE_SIZE, MARGIN

ARRIVAL_MS = 1000
"""Time the camera takes to swing in when it enters a room."""
DEPARTURE_MS = 500
"""Time it swings out before it leaves."""
MOTIONS = ("walk", "still", "hand")
"""A robot that drives in and halts, a camera on a wall, a camera in a hand."""

_SWING = 12.0
_REACH = MARGIN - 1.0
_EXPOSURE_MS = 45
_MAX_BLUR = 4
_LIGHT_PERIOD_MS = 9000.0


class Pose(NamedTuple):
    """Where the window lies on the panorama: pixels from its middle, right and down positive."""

    x: float
    y: float


@dataclass(frozen=True)
class CameraMotion:
    """How the camera moves during one visit; amplitudes in pixels, phases in radians."""

    enter_from: float
    leave_to: float
    sway: tuple[float, float]
    period_ms: tuple[float, float]
    phase: tuple[float, float]
    light_phase: float

    @classmethod
    def draw(cls, rng: np.random.Generator, kind: str = "walk") -> CameraMotion:
        """Draw a motion. Raises ValueError for a kind that MOTIONS does not list."""
        if kind not in MOTIONS:
            raise ValueError(f"motion {kind!r} is unknown: choose one of {', '.join(MOTIONS)}")
        side = 1.0 if rng.random() < 0.5 else -1.0
        swing = kind == "walk"
        sway, periods = {
            "walk": ((0.3, 1.5), (2500.0, 6000.0)),
            "still": ((0.0, 0.0), (2500.0, 6000.0)),
            "hand": ((3.0, 7.0), (700.0, 2200.0)),
        }[kind]
        return cls(
            enter_from=side * rng.uniform(3.0, _SWING) * swing,
            leave_to=-side * rng.uniform(2.0, _SWING) * swing,
            sway=(rng.uniform(*sway), 0.7 * rng.uniform(*sway) * (kind == "hand")),
            period_ms=(rng.uniform(*periods), rng.uniform(*periods)),
            phase=(rng.uniform(0.0, 2.0 * math.pi), rng.uniform(0.0, 2.0 * math.pi)),
            light_phase=rng.uniform(0.0, 2.0 * math.pi),
        )

    def pose(self, since_start_ms: float, until_end_ms: float) -> Pose:
        """Return where the camera looks."""
        swing = self.enter_from * _ease(1.0 - since_start_ms / ARRIVAL_MS)
        swing += self.leave_to * _ease(1.0 - until_end_ms / DEPARTURE_MS)
        sway = [
            amplitude * math.sin(2.0 * math.pi * since_start_ms / period + phase)
            for amplitude, period, phase in zip(self.sway, self.period_ms, self.phase, strict=True)
        ]
        return Pose(_bounded(swing + sway[0]), _bounded(sway[1]))

    def blur(self, since_start_ms: float, until_end_ms: float) -> int:
        """Return over how many pixels the image is smeared while the shutter is open, at most 4."""
        opened = self.pose(since_start_ms, until_end_ms)
        closed = self.pose(since_start_ms + _EXPOSURE_MS, until_end_ms - _EXPOSURE_MS)
        return min(_MAX_BLUR, round(abs(closed.x - opened.x)))

    def light(self, since_start_ms: float) -> float:
        """Return the slow change of illumination as a factor, 0.88..1.12."""
        angle = 2.0 * math.pi * since_start_ms / _LIGHT_PERIOD_MS + self.light_phase
        return 1.0 + 0.12 * math.sin(angle)

    @property
    def steady(self) -> bool:
        """Whether the camera never moves, not even by its shake."""
        return not any(self.sway) and not self.enter_from


def expose(
    panorama: NDArray[np.float32],
    motion: CameraMotion,
    since_start_ms: float,
    until_end_ms: float,
    rng: np.random.Generator,
    person: Person | None = None,
) -> NDArray[np.uint8]:
    """Take one image, uint8 RGB [120, 120, 3]; shake, flicker and sensor noise come from `rng`."""
    pose = motion.pose(since_start_ms, until_end_ms)
    shake = 0 if motion.steady else int(rng.integers(-1, 2))
    left = MARGIN + min(MARGIN, max(-MARGIN, round(pose.x) + shake))
    top = MARGIN + min(MARGIN, max(-MARGIN, round(pose.y)))
    image = _window(panorama, top, left)
    blur = motion.blur(since_start_ms, until_end_ms)
    if blur:
        for shift in range(1, blur + 1):
            image += _window(panorama, top, min(2 * MARGIN, left + shift))
        image /= blur + 1
    if person is not None:
        draw_person(image, person)
    image *= np.float32(motion.light(since_start_ms) * rng.uniform(0.97, 1.03))
    image += rng.standard_normal((IMAGE_SIZE, IMAGE_SIZE, 1), dtype=np.float32) * np.float32(4.0)
    exposed: NDArray[np.uint8] = np.clip(image, 0.0, 255.0).astype(np.uint8)
    return exposed


def _window(panorama: NDArray[np.float32], top: int, left: int) -> NDArray[np.float32]:
    window: NDArray[np.float32] = panorama[top : top + IMAGE_SIZE, left : left + IMAGE_SIZE].copy()
    return window


def _bounded(offset: float) -> float:
    return min(_REACH, max(-_REACH, offset))


def _ease(x: float) -> float:
    """Return a smooth step from 0 (x <= 0) to 1 (x >= 1)."""
    x = min(1.0, max(0.0, x))
    return x * x * (3.0 - 2.0 * x)
