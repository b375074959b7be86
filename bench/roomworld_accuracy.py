"""How well the embedded model answers without a cap: the table of its card.

`python bench/roomworld_accuracy.py [--model DIR ...] [--quick] [--out FILE]` asks questions of
every kind on streams of 32 and 1,024 steps from three world seeds, then questions in phrasings and
about combinations of kind, colour and room that the training never saw, against the same number of
trained ones. Several models, trainings of other seeds, are counted together and each by itself.
Prints a Markdown table with 95 % intervals; takes about six minutes for a model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import torch

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.roomworld.evaluate import Tally, Trial, evaluate, total
from infinipot_ros.roomworld.vocabulary import QUESTION_KINDS

WORLD_SEEDS = (0, 1, 2)
LENGTHS = {32: 40, 1024: 24}
"""Steps of a stream: streams for each world seed."""
CONTRASTS = {
    "phrasings": (Trial(32, 24, phrasings="trained"), Trial(32, 24, phrasings="held_out")),
    "kind, colour and room": (Trial(32, 24, objects="trained"), Trial(32, 24, objects="held_out")),
}


def run_trial(model: str, trial: Trial) -> dict[str, Tally]:
    """Evaluate one trial without a cap."""
    torch.set_num_threads(1)
    config = EngineConfig(policy="full", fps=2.0, max_new_tokens=4)
    return evaluate(StreamEngine.from_pretrained(model, config), trial)


def merged(parts: list[dict[str, Tally]]) -> dict[str, Tally]:
    """Add tallies up, and their sum as "all"."""
    sums = {kind: total({str(i): part[kind] for i, part in enumerate(parts)})
            for kind in QUESTION_KINDS}  # fmt: skip
    return {**sums, "all": total(sums)}


def cell(tally: Tally) -> str:
    """Write one share with its interval and the number of questions."""
    if not tally.asked:
        return "-"
    share, low, high = tally.interval()
    return f"{share:.3f} ({low:.3f}..{high:.3f}, {tally.asked})"


def report(models: Sequence[str], shrink: int) -> str:
    """Run everything and return the tables."""
    trials = {
        (name, model, seed): replace(trial, seed=seed, streams=max(1, trial.streams // shrink))
        for name, trial in [
            *((f"{steps} steps", Trial(steps, streams)) for steps, streams in LENGTHS.items()),
            *(
                (f"{what}: {which}", trial)
                for what, pair in CONTRASTS.items()
                for which, trial in zip(("trained", "held out"), pair, strict=True)
            ),
        ]
        for model in models
        for seed in WORLD_SEEDS
    }
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        jobs = {key: executor.submit(run_trial, key[1], trial) for key, trial in trials.items()}
        results: dict[str, list[dict[str, Tally]]] = {}
        for (name, model, seed), job in jobs.items():
            results.setdefault(name, []).append(job.result())
            print(f"{name}, {model}, world seed {seed}: done", file=sys.stderr)
    sums = {name: merged(parts) for name, parts in results.items()}
    lengths = [f"{steps} steps" for steps in LENGTHS]
    lines = ["| question | " + " | ".join(lengths) + " |", "|---" * (1 + len(lengths)) + "|"]
    rows = {kind: [sums[name][kind] for name in lengths] for kind in (*QUESTION_KINDS, "all")}
    n_seeds = len(WORLD_SEEDS)
    for number, seed in enumerate(WORLD_SEEDS):
        rows[f"all, world seed {seed}"] = [
            merged(results[name][number::n_seeds])["all"] for name in lengths
        ]
    for number, model in enumerate(models if len(models) > 1 else ()):
        own = slice(number * n_seeds, (number + 1) * n_seeds)
        for kind in (*QUESTION_KINDS, "all"):
            rows[f"{kind}, {model}"] = [merged(results[name][own])[kind] for name in lengths]
    lines += [f"| {name} | {' | '.join(map(cell, row))} |" for name, row in rows.items()]
    lines += ["", "| 32 steps | trained | held out |", "|---|---|---|"]
    for what in CONTRASTS:
        parts = [cell(sums[f"{what}: {which}"]["all"]) for which in ("trained", "held out")]
        lines.append(f"| {what} | " + " | ".join(parts) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the tables; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", nargs="+", default=["roomworld"], help="embedded name or folders, one or more"
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the streams")
    parser.add_argument("--out", type=Path, help="write the tables there too")
    options = parser.parse_args()
    text = report(options.model, 4 if options.quick else 1)
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
