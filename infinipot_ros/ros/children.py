"""Run the package's own commands as child processes, and end them cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

STOP_WAIT_S = 3.0
"""How long a child may take to end after SIGINT before it is killed, seconds."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

# The child imports the copy of the package that its parent runs, not one in the working directory.
# An installed copy is found where it is: put first, site-packages would hide PYTHONPATH.
# Should the parent die without a chance to end it, the kernel interrupts it in its stead.
_START = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({death_signal}, signal.SIGINT)
if os.getppid() != {parent}:
    sys.exit(0)
sys.path[:1] = [] if {root!r} in sys.path[1:] else [{root!r}]
from infinipot_ros.cli import main
sys.exit(main())
"""


class Child:
    """One `infinipot ...` process that writes to a log file.

    It runs in a session of its own: Ctrl-C in the terminal reaches the parent only, which then ends
    its children in order.

    Args:
        name: what it is, for messages.
        arguments: arguments of `infinipot`.
        log: file for its output.
        env: environment; None takes the parent's.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, env: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._interrupted = False
        root = str(Path(__file__).resolve().parents[2])
        command = [
            sys.executable,
            "-c",
            _START.format(root=root, parent=os.getpid(), death_signal=_PR_SET_PDEATHSIG),
            *arguments,
        ]
        environment = dict(os.environ if env is None else env)
        environment["PYTHONUNBUFFERED"] = "1"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """Return what it has written so far."""
        return self.log.read_text(errors="replace")

    def interrupt(self) -> None:
        """Send SIGINT once, as Ctrl-C does; a second one would cut its clean end short."""
        if not self._interrupted and self.exit_code() is None:
            self._interrupted = True
            self._process.send_signal(signal.SIGINT)

    def stop(self, wait_s: float = STOP_WAIT_S) -> int:
        """Interrupt, wait, kill if need be; return the exit code (negative: killed)."""
        self.interrupt()
        deadline = time.monotonic() + wait_s
        while self.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.exit_code() is None:
            self._process.kill()
        return self._process.wait()
