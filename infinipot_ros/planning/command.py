"""`infinipot plan`: what a model takes, before it is downloaded."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from infinipot_ros.core.errors import ConfigError
from infinipot_ros.planning.frames import step_shape
from infinipot_ros.planning.plan import ATTENTION, ITEMSIZE, QUANTIZED, Load, check_load, make_plan
from infinipot_ros.planning.report import as_dict, as_text
from infinipot_ros.planning.sizes import parse_bytes
from infinipot_ros.planning.source import KnownModel, find_model

_DEFAULTS = Load()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--model", required=True, help="hub id, or a folder with a config.json (no weights needed)"
    )
    parser.add_argument(
        "--cap", type=int, default=_DEFAULTS.cap, help="tokens a layer and head (%(default)s)"
    )
    parser.add_argument("--device-memory", metavar="SIZE", help="such as 8GiB, 8GB or 8000MB")
    parser.add_argument("--cameras", type=int, default=1, help="memories on one model (1)")
    parser.add_argument(
        "--fps", type=float, default=_DEFAULTS.fps, help="frames a second (%(default)s)"
    )
    parser.add_argument(
        "--pixels", type=int, default=0, help="largest frame after resizing (the model's own)"
    )
    parser.add_argument(
        "--block-steps",
        type=int,
        help=f"steps encoded together ({_DEFAULTS.block_steps}, or as many as the cap allows)",
    )
    parser.add_argument(
        "--max-dialogue-tokens",
        type=int,
        default=_DEFAULTS.max_dialogue_tokens,
        help="earlier turns that a question may bring along (%(default)s)",
    )
    parser.add_argument("--dtype", choices=sorted(ITEMSIZE), help="of the weights (as stored)")
    parser.add_argument(
        "--quantization", choices=sorted(QUANTIZED), default="", help="of the language model"
    )
    parser.add_argument("--attn-implementation", choices=ATTENTION, default="sdpa")
    parser.add_argument("--json", action="store_true", help="print JSON, sizes in bytes")


def run(args: argparse.Namespace) -> int:
    """Print the plan.

    Returns:
        0, or 1 where the device's memory is given and too small.

    Raises:
        ModelError: the model is not known here.
        ConfigError: an option cannot be, or the cap cannot hold two blocks.
    """
    files = find_model(args.model)
    memory = 0 if args.device_memory is None else parse_bytes(args.device_memory)
    load = Load(
        cap=args.cap,
        cameras=args.cameras,
        fps=args.fps,
        pixels=args.pixels,
        block_steps=_DEFAULTS.block_steps if args.block_steps is None else args.block_steps,
        max_dialogue_tokens=args.max_dialogue_tokens,
        dtype=args.dtype or "",
        quantization=args.quantization,
        attention=args.attn_implementation,
        device_memory=memory,
    )
    if args.block_steps is None:
        load = _with_fitting_blocks(files, load)
    plans = [
        make_plan(files, replace(load, cameras=number)) for number in range(1, load.cameras + 1)
    ]
    print(json.dumps(as_dict(plans[-1]), indent=2) if args.json else as_text(plans))
    return 1 if plans[-1].fits is False else 0


def _with_fitting_blocks(files: KnownModel, load: Load) -> Load:
    """Return the load with as many steps in a block as an engine allows, one at the least."""
    shape = step_shape(files.figures, files.preprocessor, pixels=load.pixels)
    for steps in range(load.block_steps, 1, -1):
        smaller = replace(load, block_steps=steps)
        try:
            check_load(files, smaller, shape)
        except ConfigError:
            continue
        return smaller
    return replace(load, block_steps=1)
