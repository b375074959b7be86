"""Write the training's course as JSON lines, and keep checkpoints that survive interruption."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch


class Journal:
    """Append one JSON object a line to `log.jsonl`, and a short line to standard output."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "log.jsonl"
        self._start = time.monotonic()

    def write(self, event: str, **values: Any) -> None:
        """Record `event` with its values and the seconds since this process began."""
        record = {"event": event, "elapsed_s": round(time.monotonic() - self._start, 1), **values}
        line = json.dumps(record)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        print(line, flush=True)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write `state` so that an interruption leaves either the old file or the new one."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint; None when there is none."""
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state
