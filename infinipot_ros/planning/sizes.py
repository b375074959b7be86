"""Bytes as people write them."""

from __future__ import annotations

import re

from infinipot_ros.core.errors import ConfigError

_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_LARGEST = 2.0**60
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_bytes(text: str) -> int:
    """Return the bytes that a text such as ``8GiB``, ``8 GB``, ``8000MB`` or ``8G`` names.

    With an i a unit is a power of 1024, without it one of 1000, as on a data sheet.

    Raises:
        ConfigError: the text names no size, or none that a device can have.
    """
    match = _FORM.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise ConfigError(f"{text!r} is no size; write 8GiB, 8GB or 8000MB")
    if not match[2]:
        raise ConfigError(
            f"{text!r} has no unit; write {match[1]}GiB, {match[1]}GB or {match[1]}MB"
        )
    size = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].lower()]
    if not 1 <= size <= _LARGEST:
        raise ConfigError(f"{text!r} is no size of a memory; write 8GiB, 8GB or 8000MB")
    return int(size)


def format_bytes(size: float) -> str:
    """Return bytes in the binary unit that leaves a readable number, such as ``226.1 MiB``."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(size) >= 1024**power:
            return (
                f"{size / 1024**power:.2f} {unit}"
                if power == 3
                else (f"{size / 1024**power:.1f} {unit}")
            )
    return f"{size:.0f} B"
