"""Frames and engines for the benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.core.types import EMBEDDED_MODEL
from infinipot_ros.models import load_adapter
from infinipot_ros.roomworld import RoomWorld, frame_time_ns

Block = tuple[list[NDArray[np.uint8]], list[int]]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say what is measured."""
    parser.add_argument("--model", default=EMBEDDED_MODEL, help="embedded, local folder, or hub id")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--max-tokens", type=int, default=288, help="the cap M (288)")
    parser.add_argument("--policy", default=EngineConfig.policy, help="compression policy")
    parser.add_argument("--block-steps", type=int, default=4, help="steps of a block (4)")
    parser.add_argument("--fps", type=float, default=2.0, help="sampling rate (2)")
    parser.add_argument(
        "--frame-size",
        type=_size,
        metavar="WxH",
        help="size of the frames, 640x480 say; left out: RoomWorld's own size",
    )
    parser.add_argument("--threads", type=int, default=0, help="threads of torch; 0: as they are")
    parser.add_argument("--seed", type=int, default=0, help="seed of the world")
    parser.add_argument("--out", metavar="DIR", help="write CSV and JSON there")


def load(args: argparse.Namespace) -> tuple[ModelAdapter, EngineConfig]:
    """Load the model and make the configuration that the options name."""
    if args.threads:
        torch.set_num_threads(args.threads)
    adapter = load_adapter(args.model, device=args.device, dtype=args.dtype)
    config = EngineConfig(
        max_tokens=args.max_tokens,
        policy=args.policy,
        block_steps=args.block_steps,
        fps=args.fps,
        seed=args.seed,
    )
    return adapter, config


def blocks(args: argparse.Namespace, adapter: ModelAdapter) -> Iterator[Block]:
    """Yield blocks of RoomWorld for ever, frames resized to the wanted size.

    A tour of 256 frames is rendered once and shown again and again with running stamps, so that
    what is timed is the engine and not the renderer.
    """
    world = RoomWorld(seed=args.seed)
    tour = [world.image(frame_time_ns(i, args.fps)) for i in range(256)]
    if args.frame_size is not None:
        tour = [np.asarray(Image.fromarray(image).resize(args.frame_size)) for image in tour]
    count, index = args.block_steps * adapter.frames_per_step, 0
    while True:
        numbers = range(index, index + count)
        yield (
            [tour[number % len(tour)] for number in numbers],
            [frame_time_ns(number, args.fps) for number in numbers],
        )
        index += count


def advance(engine: StreamEngine, source: Iterator[Block], count: int) -> None:
    """Observe some blocks."""
    for _ in range(count):
        engine.observe(*next(source))


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form WIDTHxHEIGHT, 640x480 say")
    return int(width), int(height)
