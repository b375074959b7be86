"""Draw how the embedded model learned: `python bench/training_curve.py LOG.jsonl CURVE.png`.

Upper panel: what the vision tower reads from held-out steps. Lower panel: answers of the language
model to its training streams, by kind of question. Where a training was resumed from an earlier
checkpoint, the later course of the same steps is drawn.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from infinipot_ros.roomworld.vocabulary import QUESTION_KINDS

_READ = ("kind", "color", "side", "room", "nothing", "kind_in_passing")


def course(log: Path, event: str) -> list[dict[str, float]]:
    """Return the reports of a stage in order of steps, the last one of each step."""
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    by_step = {entry["step"]: entry for entry in entries if entry["event"] == event}
    return [by_step[step] for step in sorted(by_step)]


def draw(log: Path, picture: Path) -> None:
    """Write the picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    panels = (
        (upper, "vision", _READ, (0.7, 1.005), "vision tower, held-out steps"),
        (lower, "language", QUESTION_KINDS, (0.0, 1.02), "language model, training streams"),
    )
    styles = ("-", "--", ":")
    for axes, event, names, limits, title in panels:
        reports = course(log, event)
        for number, name in enumerate(names):
            known = [(report["step"], report[name]) for report in reports if name in report]
            if known:
                axes.plot(*zip(*known, strict=True), styles[number // 10], label=name, lw=1.4)
        axes.set(title=title, xlabel="optimiser step", ylabel="exact match", ylim=limits)
        axes.grid(alpha=0.3)
        axes.legend(ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(picture, dpi=110)


def main() -> int:
    """Draw the picture that the arguments name; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    draw(options.log, options.picture)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
