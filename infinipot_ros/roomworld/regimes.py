"""The kinds of life that a robot's camera leads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Regime:
    """What the camera meets. Times in milliseconds, inclusive bounds."""

    stay_ms: tuple[int, int]
    """Shortest and longest stay in one place."""
    corridor_ms: tuple[int, int] | None
    """Shortest and longest way between two places, longer than a sampling interval of 500 ms so
    that no temporal step shows two places; None: the picture cuts from one to the next, on whole
    seconds."""
    motion: str
    """How the camera moves, see `camera.MOTIONS`."""
    objects: tuple[int, int]
    """Fewest and most objects of a tour."""
    per_scene: tuple[float, ...]
    """Weights of 1, 2, ... objects standing together."""
    places: int | None = None
    """How many places there are, visited in turn; None: always another one."""
    revisit_share: float = 0.0
    """Share of stays that lead back to an earlier place, where there are always new ones."""
    move_share: float = 0.3
    """Share of objects that are met again in another place later."""
    people_share: float = 0.06
    """Share of images with somebody in front of the camera."""
    quiet_ms: tuple[int, int] | None = None
    """Shortest and longest stay without an object, where it differs."""


_WALK_MS = (700, 1500)

REGIME: dict[str, Regime] = {
    # Rooms after rooms, some of them met again.
    "tour": Regime((1500, 6000), _WALK_MS, "walk", (1, 8), (0.6, 0.25, 0.15), revisit_share=0.15),
    # The same five places round and round; things stand there for a round or two.
    "patrol": Regime((2000, 5000), _WALK_MS, "walk", (3, 8), (0.7, 0.3), places=5),
    # A camera on a wall: nothing, then two seconds of something.
    "watch": Regime(
        (2000, 3000), None, "still", (3, 8), (0.85, 0.15), places=1, move_share=0.0,
        people_share=0.02, quiet_ms=(4000, 16000),
    ),
    # A camera in a hand: every patch changes all the time.
    "handheld": Regime((1500, 6000), _WALK_MS, "hand", (3, 8), (0.7, 0.3), revisit_share=0.15),
    # The scene changes at once, every few seconds.
    "cuts": Regime((2000, 4000), None, "walk", (3, 8), (0.7, 0.3)),
    # Many objects in every view, and people in front of them.
    "crowd": Regime(
        (2500, 6000), _WALK_MS, "walk", (9, 14), (0.0, 0.2, 0.4, 0.3, 0.1), people_share=0.3,
    ),
}  # fmt: skip
REGIMES: tuple[str, ...] = tuple(REGIME)
