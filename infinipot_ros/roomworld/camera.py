"""Move the camera within a scene and expose its images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.roomworld.scenes import IMAGE_SIZE, MARGIN

ARRIVAL_MS = 1000
"""Time the camera takes to swing in when it enters a room."""
DEPARTURE_MS = 500
"""Time it swings out before it leaves."""
_MAX_PAN = 10.0
_LIGHT_PERIOD_MS = 7000.0


@dataclass(frozen=True)
class CameraMotion:
    """How the camera moves during one visit; pans in pixels, phases in radians."""

    enter_from: float
    leave_to: float
    drift: float
    drift_period_ms: float
    drift_phase: float
    light_phase: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> CameraMotion:
        """Draw a motion: swing in from one side, drift by a pixel or two, swing out."""
        side = 1.0 if rng.random() < 0.5 else -1.0
        return cls(
            enter_from=side * rng.uniform(3.0, 9.0),
            leave_to=-side * rng.uniform(2.0, 7.0),
            drift=rng.uniform(0.3, 1.5),
            drift_period_ms=rng.uniform(2500.0, 6000.0),
            drift_phase=rng.uniform(0.0, 2.0 * math.pi),
            light_phase=rng.uniform(0.0, 2.0 * math.pi),
        )

    def pan(self, since_start_ms: int, until_end_ms: int) -> float:
        """Return the camera's offset in pixels, positive to the right."""
        arriving = _ease(1.0 - since_start_ms / ARRIVAL_MS)
        leaving = _ease(1.0 - until_end_ms / DEPARTURE_MS)
        angle = 2.0 * math.pi * since_start_ms / self.drift_period_ms + self.drift_phase
        offset = self.enter_from * arriving + self.leave_to * leaving + self.drift * math.sin(angle)
        return min(_MAX_PAN, max(-_MAX_PAN, offset))

    def light(self, since_start_ms: int) -> float:
        """Return the slow change of illumination as a factor, 0.95..1.05."""
        angle = 2.0 * math.pi * since_start_ms / _LIGHT_PERIOD_MS + self.light_phase
        return 1.0 + 0.05 * math.sin(angle)


def expose(
    panorama: NDArray[np.float32], pan: float, light: float, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Take one image, uint8 RGB [84, 84, 3]; shake, flicker and sensor noise come from `rng`."""
    shake = int(rng.integers(-1, 2))
    left = MARGIN + min(MARGIN, max(-MARGIN, round(pan) + shake))
    image = panorama[:, left : left + IMAGE_SIZE] * np.float32(light * rng.uniform(0.97, 1.03))
    image += rng.standard_normal((IMAGE_SIZE, IMAGE_SIZE, 1), dtype=np.float32) * np.float32(4.0)
    exposed: NDArray[np.uint8] = np.clip(image, 0.0, 255.0).astype(np.uint8)
    return exposed


def _ease(x: float) -> float:
    """Return a smooth step from 0 (x <= 0) to 1 (x >= 1)."""
    x = min(1.0, max(0.0, x))
    return x * x * (3.0 - 2.0 * x)
