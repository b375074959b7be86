"""What the demo prints: a live line, questions beside their answers, a verdict."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from typing import TextIO

from infinipot_ros.msg import MemoryStatus

_BAR = 10
ANSWER_WIDTH = 72
"""Longest answer that is shown whole, characters."""

PLAIN_PERIOD_S = 5.0
"""Time between two status lines where the output is no terminal, seconds."""


class View:
    """Write to a terminal, with a line that is updated in place, or plainly to a file or pipe.

    Args:
        out: where to write.
    """

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.out = out
        self._live = out.isatty()
        self._line = ""
        self._plain_at = 0.0

    def say(self, text: str = "") -> None:
        """Write lines of text above the live line."""
        self._clear()
        self._write(text + "\n")
        self._draw()

    def heading(self, text: str) -> None:
        """Write a line that stands out on a terminal."""
        self.say(f"\033[1m{text}\033[0m" if self._live else text)

    def status(self, status: MemoryStatus, elapsed_s: float) -> None:
        """Show the memory's state."""
        self._clear()
        self._line = status_line(status, elapsed_s)
        if self._live:
            self._draw()
        elif time.monotonic() - self._plain_at >= PLAIN_PERIOD_S:
            self._plain_at = time.monotonic()
            self._write(self._line + "\n")

    def end_live_line(self) -> None:
        """Leave the live line where it is and write on below it."""
        if self._live and self._line:
            self._write("\n")
        self._line = ""

    def question(self, elapsed_s: float, text: str) -> None:
        """Show a question."""
        self.say(f"\n  {clock(elapsed_s)}  Q  {text}")

    def answer(self, text: str, truth: str, note: str) -> None:
        """Show an answer beside the truth."""
        line = f"        A  {shorten(text, ANSWER_WIDTH)}"
        if truth:
            line = f"{line:<32} truth: {truth:<12} {'right' if text == truth else 'wrong'}"
        self.say(f"{line}   {self._dim(note)}\n")

    def _dim(self, text: str) -> str:
        return f"\033[2m{text}\033[0m" if self._live else text

    def _clear(self) -> None:
        if self._live and self._line:
            self._write("\r\033[K")

    def _draw(self) -> None:
        if self._live and self._line:
            # A line that wraps could not be taken back.
            width = shutil.get_terminal_size().columns - 1
            self._write(self._line[:width])

    def _write(self, text: str) -> None:
        # Whoever read it may be gone (`| head`): the run goes on, and its exit code tells.
        with contextlib.suppress(OSError):
            self.out.write(text)
            self.out.flush()


def status_line(status: MemoryStatus, elapsed_s: float) -> str:
    """Return one line about the memory: frames, tokens and bytes against their caps."""
    share = status.tokens_retained / status.tokens_cap if status.tokens_cap else 0.0
    filled = min(_BAR, round(_BAR * share))
    return (
        f"  {clock(elapsed_s)}  {status.frames_encoded} frames"
        f"  {status.tokens_retained}/{status.tokens_cap} tokens"
        f" [{'#' * filled}{'.' * (_BAR - filled)}]"
        f"  {megabytes(status.bytes_used)}/{megabytes(status.bytes_cap)} MB"
        f"  {status.compressions} compression{'' if status.compressions == 1 else 's'}"
    )


def shorten(text: str, width: int) -> str:
    """Return the text on one line, cut at the width."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."


def clock(seconds: float) -> str:
    """Return seconds as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def megabytes(count: int) -> str:
    """Return bytes as megabytes."""
    return f"{count / 1e6:.2f}"
