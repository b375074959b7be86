"""What the benchmarks share: clocks, memory, machine, tables and files."""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch


def seconds(action: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that a call takes, work queued on the accelerator included."""
    _settle(device)
    started = time.perf_counter()
    action()
    _settle(device)
    return time.perf_counter() - started


def peak_bytes(device: torch.device) -> tuple[str, int]:
    """Return what was measured and the peak so far, bytes: accelerator or process memory."""
    if device.type == "cuda":
        return "accelerator memory", torch.cuda.max_memory_allocated(device)
    return "process memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """Return the bytes of this process that lie in memory now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine(device: torch.device) -> dict[str, object]:
    """Return what the figures were measured on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": f"{device} ({name})",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def print_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows of the same keys as an aligned table."""
    titles = list(rows[0])
    cells = [titles, *([str(row[title]) for title in titles] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(titles))]
    for number, line in enumerate(cells):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
        if number == 0:
            print("  ".join("-" * width for width in widths))


def save(
    folder: str | None,
    name: str,
    rows: Sequence[Mapping[str, object]],
    context: Mapping[str, object],
) -> None:
    """Write ``name.csv`` and ``name.json`` into the folder; None writes nothing."""
    if folder is None:
        return
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with (target / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    content = {"context": dict(context), "rows": [dict(row) for row in rows]}
    (target / f"{name}.json").write_text(json.dumps(content, indent=2), encoding="utf-8")
    print(f"written: {target / name}.csv, {target / name}.json")


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
