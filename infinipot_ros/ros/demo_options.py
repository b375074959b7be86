"""The options of `infinipot demo`; imports nothing heavy."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.types import EMBEDDED_MODEL

_SUFFIXES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--video", metavar="FILE", help="show a video file instead of RoomWorld")
    source.add_argument("--bag", metavar="PATH", help="play a bag instead of RoomWorld")
    parser.add_argument("--bag-topic", help="image topic of the bag (default: the first one)")
    parser.add_argument("--keep", action="store_true", help="stay up afterwards for your questions")
    parser.add_argument("--model", default=EMBEDDED_MODEL, help="model that watches (%(default)s)")
    parser.add_argument(
        "--max-tokens", type=int, default=288, help="cap of the memory, tokens (%(default)s)"
    )
    parser.add_argument("--policy", default=EngineConfig.policy, help="compression (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="which RoomWorld (%(default)s)")
    parser.add_argument(
        "--pace",
        type=pace,
        default=1.0,
        help="ask the questions this many times faster; the memory may not fill in that time",
    )
    parser.add_argument(
        "--plot",
        type=plot_file,
        metavar="FILE",
        help="picture of the memory over time, .png, .svg or .pdf (default: a new .png in the "
        "folder for temporary files)",
    )
    parser.epilog = (
        "Exit code 0 only if frames flowed, the memory was compressed and stayed below its cap, "
        "every question was answered and both processes ended cleanly "
        "(and the picture was drawn that --plot asks for)."
    )


def pace(text: str) -> float:
    """Read the option `--pace`.

    Raises:
        argparse.ArgumentTypeError: it is no finite number above 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no pace; choose a finite number above 0")
    return value


def plot_file(text: str) -> Path:
    """Read the option `--plot`: a file that can be written, of a kind that can be drawn.

    Raises:
        argparse.ArgumentTypeError: it cannot; two minutes later would be late to say so.
    """
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # a name too long; the home of nobody
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {error}") from None
    if path.suffix.lower() not in _SUFFIXES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no picture; its name must end in one of {', '.join(_SUFFIXES)}"
        )
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: there is no folder {str(path.parent)!r}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path
