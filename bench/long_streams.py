"""Ten thousand blocks with compact positions, on a model of three position axes and on one of one.

    python bench/long_streams.py [--blocks 10000] [--families qwen2_5_vl,qwen3_vl,llava_onevision]
        [--skip-accuracy]

Scaled-down models of random weights watch a stream that repeats itself, within a window no longer
than the stretch that repeats. So the memory shows the same late scene whenever it is asked about,
early in the stream and at its end; positions have been re-indexed many times in between. Wherever a
question finds the positions where an earlier one found them, its answer must be the same. (Random
weights are at the mercy of positions: at others, they may say something else. Families that write
the time between steps never see the same twice; of them only positions and bytes are judged.) Then
the embedded model: the accuracy after as many blocks of quiet, against a short stream of the same
events. Exit code 0 if every promise holds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from infinipot_ros.bench.measure import machine, print_table, resident_bytes
from infinipot_ros.bench.memory.length import length_figures, length_jobs
from infinipot_ros.bench.memory.plan import WHOLE
from infinipot_ros.bench.memory.pool import run_jobs
from infinipot_ros.bench.memory.tables import signed
from infinipot_ros.bench.memory.worker import Record, run_job
from infinipot_ros.core import Answer, EngineConfig, StreamEngine
from infinipot_ros.models import load_adapter
from infinipot_ros.models.scaled import write_scaled

QUESTION = "Where is the red mug?"
PERIOD = 12
"""Blocks of one step after which the stream repeats itself."""
WARM_UP = 240
REGIMES = ("patrol", "watch")
STREAMS = 2
POLICY = "multi_tar"


def watch(family: str, blocks: int) -> dict[str, object]:
    """Run one family and return a row of figures."""
    with tempfile.TemporaryDirectory() as folder:
        adapter = load_adapter(str(write_scaled(family, Path(folder) / family)), device="cpu")
    per_step = adapter.preprocessor(0, 0).max_tokens_per_step() + adapter.max_step_text()
    config = EngineConfig(
        policy="sliding_window",
        max_tokens=PERIOD * per_step,
        block_steps=1,
        max_question_tokens=32,
        max_new_tokens=8,
    )
    probe = StreamEngine(adapter, config)
    # Tight, so that re-indexing is frequent: the window twice, and what a question needs.
    span = adapter.numbering(config.fps).most(PERIOD, per_step, 0)
    limit = probe.cache.prefix_tokens + 2 * (span + probe._reserve)
    engine = StreamEngine(adapter, replace(config, position_limit=limit))
    furthest, compacted = 0, 0
    answers: dict[int, list[tuple[int, Answer]]] = {}
    held = engine.cache.bytes_allocated
    resident, constant = 0, True
    frames = _repeating_frames(adapter.frames_per_step)
    for block in range(1, blocks + 1):
        before = engine._timeline.next_text_position()
        stamps = [500_000_000 * block + number for number in range(adapter.frames_per_step)]
        engine.observe(frames[block % PERIOD], stamps)
        compacted += engine._timeline.next_text_position() <= before
        furthest = max(furthest, int(engine.cache.positions.max()))
        constant &= engine.cache.bytes_allocated == held
        if block == WARM_UP:
            resident = resident_bytes()
        if block % PERIOD == 0 and block >= WARM_UP:
            at = engine._timeline.next_text_position()
            answers.setdefault(at, []).append((block, engine.ask(QUESTION)))
    again = [found for found in answers.values() if len(found) > 1]
    unlike = sum(len({answer.text for _, answer in found}) > 1 for found in again)
    spread = max(float(np.ptp([answer.confidence for _, answer in found])) for found in again)
    apart = max(found[-1][0] - found[0][0] for found in again)
    told = adapter.max_step_text() > 0
    return {
        "family": family,
        "blocks": blocks,
        "highest position": f"{furthest} of {limit}",
        "re-indexed": compacted,
        "cache bytes": f"{held}, {'constant' if constant else 'CHANGED'}",
        "process": f"{100 * (resident_bytes() / resident - 1):+.2f} %",
        "answers": f"{sum(map(len, answers.values()))} at {len(answers)} places, "
        + ("each with its time" if told else f"{unlike} differ"),
        "confidence": f"within {spread:.0e}",
        "blocks apart": apart,
        "ok": furthest < limit
        and constant
        and compacted > 0
        and apart > blocks // 2
        and (told or (unlike == 0 and spread < 1e-3)),
    }


def _repeating_frames(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (count, 96, 128, 3), dtype=np.uint8) for _ in range(PERIOD)]


def accuracy(blocks: int) -> bool:
    """Print how well the embedded model answers after a short and after a very long stream."""
    size = replace(WHOLE, long_steps=(4 * blocks,), length_streams=STREAMS)
    cap, jobs = length_jobs(
        size,
        model="roomworld",
        device="cpu",
        seed=0,
        regimes=REGIMES,
        policy=POLICY,
        tokens_per_step=9,
    )
    found = run_jobs(run_job, jobs, 2, "stream").results
    by_length: dict[int, list[Record]] = {}
    for number, job in enumerate(jobs):
        by_length.setdefault(job.stream.steps, []).extend(found.get(number, ()))
    short = by_length.pop(size.short_steps)
    print(f"roomworld, {POLICY}, cap {cap.label}, {STREAMS} streams of {', '.join(REGIMES)}:")
    fine = True
    for steps, records in by_length.items():
        for figure in length_figures(short, records, REGIMES, cap, steps):
            kind = "tour" if figure.kind == "all" else figure.kind
            print(
                f"  {2 * steps} frames, {figure.regime:7s} positions {figure.positions:9s} "
                f"{kind:5s} {figure.short.value:.3f} -> {figure.long.value:.3f}, "
                f"{signed(figure.change)}, n {figure.n}"
            )
            if figure.positions == "compact" and (figure.regime, kind) == ("all", "tour"):
                fine = figure.change.high > -0.03  # few streams: what is sure counts
    return fine


def main() -> int:
    """Run the bench; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--families", default="qwen2_5_vl,qwen3_vl,llava_onevision")
    parser.add_argument("--skip-accuracy", action="store_true")
    args = parser.parse_args()
    if args.blocks < 2 * WARM_UP:
        parser.error(f"--blocks is {args.blocks}; at least {2 * WARM_UP} are needed")
    torch.set_num_threads(1)
    print(", ".join(f"{key} {value}" for key, value in machine(torch.device("cpu")).items()))
    rows = [watch(family, args.blocks) for family in args.families.split(",")]
    print_table(rows)
    fine = all(row["ok"] for row in rows)
    if not args.skip_accuracy:
        fine &= accuracy(args.blocks)
    print("every promise holds" if fine else "A PROMISE IS BROKEN", file=sys.stderr)
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
