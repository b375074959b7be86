"""Half precision against float32, for every family: finite for ever, and how far apart.

    python bench/precision.py [--blocks 2000] [--families ...] [--out FILE]

Scaled-down models with the same random weights in float32, bfloat16 and float16 watch the same
stream on the CPU under a cap. Reported: whether everything stored is finite after every block, the
largest difference of the question's last logits from float32 over their spread, before the first
compression (so that all three hold the same tokens), how many of the retained tokens are the same
at the end, and how often the first answer token is. Exit code 0 if everything was finite.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infinipot_ros.bench.measure import machine, print_table
from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.models import load_adapter
from infinipot_ros.models.families import FAMILIES
from infinipot_ros.models.scaled import write_scaled

QUESTION = "Where is the red mug?"
CAP_STEPS = 16
ASK_EVERY = 50
DTYPES = ("float32", "bfloat16", "float16")


def last_logits(engine: StreamEngine) -> torch.Tensor:
    """Return float32 logits of the first answer token; the memory is left as it was."""
    mark = engine.cache.mark()
    with torch.inference_mode():
        embeddings = engine._embed_question(QUESTION, ())
        first = engine._timeline.next_text_position()
        axes = engine.adapter.shape.axes
        positions = torch.arange(first, first + len(embeddings)).expand(axes, -1)
        hidden = engine.adapter.prefill(embeddings, positions, engine.cache)
        logits = engine.adapter.logits(hidden[-1:])[0]
    engine.cache.rewind(mark)
    return logits


def same_tokens(one: StreamEngine, other: StreamEngine) -> float:
    """Return the share of retained (layer, head, step, row, column) that both have."""
    found = []
    for engine in (one, other):
        cache = engine.cache
        key = (cache.steps.long() << 20) + (cache.rows.long() + 1 << 10) + cache.cols.long()
        found.append(key)
    shared = sum(
        len(np.intersect1d(mine.numpy(), theirs.numpy()))
        for mine, theirs in zip(found[0].flatten(0, 1), found[1].flatten(0, 1), strict=True)
    )
    return shared / found[0].numel()


def compare(family: str, blocks: int) -> list[dict[str, object]]:
    """Run one family in three precisions; return a row for each of the two halves."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(write_scaled(family, Path(folder) / family))
        adapters: dict[str, Any] = {d: load_adapter(path, device="cpu", dtype=d) for d in DTYPES}
    per_step = (
        adapters["float32"].preprocessor(0, 0).max_tokens_per_step()
        + adapters["float32"].max_step_text()
    )
    config = EngineConfig(max_tokens=CAP_STEPS * per_step, block_steps=1, max_new_tokens=1)
    engines = {dtype: StreamEngine(adapter, config) for dtype, adapter in adapters.items()}
    finite = dict.fromkeys(DTYPES, 0)
    agree = dict.fromkeys(DTYPES, 0)
    early: dict[str, float] = {}
    asked = 0
    rng = np.random.default_rng(0)
    count = adapters["float32"].frames_per_step
    scene = rng.integers(0, 256, (1, 96, 128, 3))
    for block in range(blocks):
        if block % 7 == 0:
            scene = rng.integers(0, 256, (1, 96, 128, 3))
        noise = rng.integers(-9, 10, (count, 96, 128, 3))
        frames = np.clip(scene + noise, 0, 255).astype(np.uint8)
        stamps = [500_000_000 * (count * block + number) for number in range(count)]
        for dtype, engine in engines.items():
            engine.observe(frames, stamps)
            cache = engine.cache
            finite[dtype] += bool(
                cache.video_keys.isfinite().all() and cache.video_values.isfinite().all()
            )
        if block + 1 == CAP_STEPS // 2 or (block + 1) % ASK_EVERY == 0:
            logits = {dtype: last_logits(engine) for dtype, engine in engines.items()}
            reference = logits["float32"]
            asked += 1
            for dtype, found in logits.items():
                agree[dtype] += int(found.argmax()) == int(reference.argmax())
                if asked == 1:
                    early[dtype] = float((found - reference).abs().max() / reference.std())
    return [
        {
            "family": family,
            "dtype": dtype,
            "finite blocks": f"{finite[dtype]} of {blocks}",
            "logits / spread": f"{early[dtype]:.3f}",
            "same tokens": f"{100 * same_tokens(engines['float32'], engines[dtype]):.0f} %",
            "same first word": f"{agree[dtype]} of {asked}",
            "ok": finite[dtype] == blocks,
        }
        for dtype in DTYPES[1:]
    ]


def main() -> int:
    """Run the bench; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=2000)
    parser.add_argument("--families", default=",".join(FAMILIES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(", ".join(f"{key} {value}" for key, value in machine(torch.device("cpu")).items()))
    rows = [row for family in args.families.split(",") for row in compare(family, args.blocks)]
    print_table(rows)
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
