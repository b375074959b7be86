"""`infinipot bench speed`: what streaming, compressing and asking cost.

Every figure that matters is a ratio against a baseline that takes turns with it in the same run, so
that a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import math
import statistics
from functools import partial

import torch

from infinipot_ros.bench.measure import machine, peak_bytes, print_table, save, seconds
from infinipot_ros.bench.stream import Block, add_model_arguments, advance, blocks, load
from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.adapter import ModelAdapter

_QUESTION = "what do you see now ?"
_REENCODED_FRAMES = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_arguments(parser)
    parser.add_argument("--repeats", type=int, default=7, help="paired repeats of each figure (7)")
    parser.add_argument(
        "--minutes",
        type=float,
        nargs="+",
        default=[1.0, 10.0, 60.0],
        help="lengths of stream after which the first token is timed (1 10 60)",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print and save; return 0."""
    adapter, config = load(args)
    device = adapter.shape.device
    context = {"model": args.model, "policy": args.policy, "cap": args.max_tokens}
    context |= machine(device)
    print(", ".join(f"{key} {value}" for key, value in context.items()))
    rows = [
        *_observe(adapter, config, args),
        *_first_token(adapter, config, args),
    ]
    kind, peak = peak_bytes(device)
    rows.append(_row(f"peak {kind}", f"{peak / 2**20:.0f} MiB"))
    print_table(rows)
    save(args.out, "speed", rows, context)
    return 0


def _observe(
    adapter: ModelAdapter, config: EngineConfig, args: argparse.Namespace
) -> list[dict[str, str]]:
    """Time of `observe` against the model's own forward over the same tokens."""
    engine = StreamEngine(adapter, config)
    source = blocks(args, adapter)
    while not engine.stats().compressions:
        advance(engine, source, 1)
    raw_forward = _RawForward(adapter, config, next(source))
    # A repeat spans at least five compressions: they come every (M - C) / block blocks.
    cycle = math.ceil((config.max_tokens - config.target_tokens) / raw_forward.block_tokens)
    ratios, shares, rates = [], [], []
    for _ in range(args.repeats):
        raw = ours = compress = 0.0
        frames = 0
        for _ in range(5 * (cycle + 1)):
            block = next(source)
            raw += raw_forward.time(block)
            before = engine.stats().compressions
            ours += seconds(partial(engine.observe, *block), adapter.shape.device)
            stats = engine.stats()
            compress += 1e-3 * stats.compress_ms * (stats.compressions - before)
            frames += len(block[0])
        ratios.append(ours / raw)
        shares.append(compress / ours)
        rates.append(frames / ours)
    return [
        _ratio("observe / raw forward of the same tokens", ratios, goal=1.10),
        _row("observe", *_spread(rates, 1), note="frames/s"),
        _ratio("compression / observe", shares),
    ]


class _RawForward:
    """The baseline: vision encoder and decoder over a block, and nothing else.

    The context is a cache filled to the mean of what the capped engine holds when it takes a
    block; nothing is committed, compressed or written down, and pixels are prepared beforehand.
    """

    def __init__(self, adapter: ModelAdapter, config: EngineConfig, block: Block) -> None:
        self._adapter = adapter
        self._pixels = adapter.preprocessor(config.min_pixels, config.max_pixels)
        full = EngineConfig(policy="full", block_steps=config.block_steps, fps=config.fps)
        engine = StreamEngine(adapter, full)
        engine.observe(*block)
        self.block_tokens = engine.cache.video_tokens
        mean = (config.target_tokens + config.max_tokens - self.block_tokens) // 2
        while engine.cache.video_tokens + self.block_tokens <= mean:
            engine.observe(*block)
        self._cache = engine.cache
        self._cache.ensure(self.block_tokens)

    def time(self, block: Block) -> float:
        """Return the seconds of one forward over the block."""
        adapter, cache = self._adapter, self._cache
        prepared, grid = self._pixels(block[0])
        pixels = adapter.to_device(prepared)
        first = torch.arange(self.block_tokens, device=pixels.device) + cache.length
        positions = first.expand(adapter.shape.axes, -1)

        def forward() -> None:
            adapter.prefill(adapter.encode(pixels, grid).embeddings, positions, cache)

        with torch.inference_mode():
            return seconds(forward, adapter.shape.device)


def _first_token(
    adapter: ModelAdapter, config: EngineConfig, args: argparse.Namespace
) -> list[dict[str, str]]:
    """Time to the first token by length of stream, and against re-encoding recent frames."""
    per_block = config.block_steps * adapter.frames_per_step
    engines: dict[float, StreamEngine] = {}
    for minutes in args.minutes:
        engine = StreamEngine(adapter, config)
        advance(engine, blocks(args, adapter), max(1, round(60 * minutes * args.fps / per_block)))
        engines[minutes] = engine
    source = blocks(args, adapter)
    recent = [next(source) for _ in range(max(1, _REENCODED_FRAMES // per_block))]
    fresh = StreamEngine(
        adapter, EngineConfig(policy="full", block_steps=config.block_steps, fps=config.fps)
    )

    def ask(engine: StreamEngine) -> None:
        engine.ask(_QUESTION, max_new_tokens=1)

    def reencode() -> None:
        fresh.reset()
        advance(fresh, iter(recent), len(recent))
        ask(fresh)

    device = adapter.shape.device
    for engine in engines.values():
        ask(engine)
    reencode()
    times: dict[float, list[float]] = {minutes: [] for minutes in engines}
    baseline: list[float] = []
    for _ in range(args.repeats):
        # Ten questions a repeat, the lengths of stream in turn: one question is over in a blink.
        sums = dict.fromkeys(engines, 0.0)
        for _ in range(10):
            for minutes, engine in engines.items():
                sums[minutes] += seconds(partial(ask, engine), device) / 10
        for minutes in engines:
            times[minutes].append(sums[minutes])
        baseline.append(seconds(reencode, device))
    first = min(engines)
    rows = []
    for minutes in sorted(engines):
        ratio = [b / a for a, b in zip(times[first], times[minutes], strict=True)]
        name = f"time to first token after {minutes:g} min"
        value = f"{1e3 * statistics.median(times[minutes]):.2f} ms"
        if minutes == first:
            rows.append(_row(name, value))
        else:
            rows.append(_ratio(f"{name} / after {first:g} min", ratio, goal=1.05, note=value))
    last = max(engines)
    ratio = [a / b for a, b in zip(times[last], baseline, strict=True)]
    name = f"time to first token / re-encoding {_REENCODED_FRAMES} frames"
    rows.append(_ratio(name, ratio, goal=0.10))
    return rows


def _spread(values: list[float], digits: int = 3) -> tuple[str, str]:
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f}", f"{low:.{digits}f} to {high:.{digits}f}"


def _ratio(
    figure: str, values: list[float], *, goal: float | None = None, note: str = ""
) -> dict[str, str]:
    """A row of ratios of times; against a goal, whether the median meets it."""
    if goal is None:
        return _row(figure, *_spread(values), note=note)
    verdict = "met" if statistics.median(values) <= goal else "MISSED"
    return _row(figure, *_spread(values), goal=f"at most {goal:.2f}: {verdict}", note=note)


def _row(
    figure: str, median: str, spread: str = "", *, goal: str = "", note: str = ""
) -> dict[str, str]:
    return {"figure": figure, "median": median, "spread": spread, "goal": goal, "note": note}
