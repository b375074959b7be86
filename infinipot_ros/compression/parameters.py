"""Checks for policy parameters: one message per refused value, naming field, value and range."""

from __future__ import annotations

from .base import PolicyError

MOST = 1_000_000
"""Most steps or patches that a parameter may count: more means nothing, and must not overflow."""


def check_ratio(name: str, value: object, *, closed: bool) -> None:
    """Refuse a value that is not a number in (0, 1), or in [0, 1] when `closed`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and (0 < value < 1 or (closed and value in (0, 1))):  # type: ignore[operator]
        return
    where = "[0, 1]" if closed else "(0, 1)"
    raise PolicyError(f"{name}={value!r} is refused: choose a number in {where}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the named choices."""
    if value not in choices:
        raise PolicyError(f"{name}={value!r} is refused: choose one of {', '.join(choices)}")


def check_flag(name: str, value: object) -> None:
    """Refuse a value that is not true or false."""
    if not isinstance(value, bool):
        raise PolicyError(f"{name}={value!r} is refused: choose true or false")


def check_integer(name: str, value: object, *, low: int, high: int | None = None) -> None:
    """Refuse a value that is not a whole number of at least `low`, and `high` at most."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and low <= value and (high is None or value <= high):  # type: ignore[operator]
        return
    where = f"{low} or more" if high is None else f"{low} to {high:,}"
    raise PolicyError(f"{name}={value!r} is refused: choose a whole number, {where}")
