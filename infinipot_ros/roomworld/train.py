"""Train the embedded model.

`python -m infinipot_ros.roomworld.train --out DIR [--seed N] [--resume]` leaves in DIR: `log.jsonl`
(course of the training), `checkpoint.pt` (to resume from), the token pools, and `model/`, the
finished folder that `from_pretrained` loads.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from infinipot_ros.roomworld.training.config import TrainConfig, smoke_config
from infinipot_ros.roomworld.training.trainer import Trainer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or resume a training; return the process's exit code (1: a gate was not reached)."""
    parser = argparse.ArgumentParser(
        prog="python -m infinipot_ros.roomworld.train", description="Train the RoomWorld model."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for everything written")
    parser.add_argument("--seed", type=int, default=1, help="decides data, weights and order")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads and worker processes")
    parser.add_argument("--resume", action="store_true", help="continue from DIR/checkpoint.pt")
    parser.add_argument("--smoke", action="store_true", help="run every stage for a few steps only")
    parser.add_argument(
        "--stop-after", type=int, default=None, metavar="N", help="stop after N optimiser steps"
    )
    options = parser.parse_args(arguments)
    if options.smoke:
        config = smoke_config(options.seed)
    else:
        config = TrainConfig(seed=options.seed, threads=options.threads)
    checkpoint = options.out / "checkpoint.pt"
    if checkpoint.exists() and not options.resume:
        parser.error(f"{checkpoint} exists: pass --resume to continue it, or another --out")
    trainer = Trainer(config, options.out)
    finished = trainer.run(stop_after=options.stop_after)
    return 0 if finished and trainer.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
