"""`infinipot bench soak`: thousands of blocks, and whether anything grows."""

from __future__ import annotations

import argparse

from torch import Tensor

from infinipot_ros.bench.measure import machine, print_table, resident_bytes, save
from infinipot_ros.bench.stream import add_model_arguments, advance, blocks, load
from infinipot_ros.core import StreamEngine
from infinipot_ros.core.cache import SlabCache

_WARM_UP = 200  # blocks until allocators and libraries have what they need
_GROWTH = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_arguments(parser)
    parser.add_argument("--blocks", type=int, default=5000, help="blocks to observe (5000)")
    parser.add_argument("--ask-every", type=int, default=50, help="blocks between questions (50)")


def run(args: argparse.Namespace) -> int:
    """Observe, watch and report; return 0 if the cap and the memory held, else 1."""
    adapter, config = load(args)
    engine = StreamEngine(adapter, config)
    watch = _WriteWatch(engine.cache)
    context = {"model": args.model, "policy": args.policy, "cap": args.max_tokens}
    context |= machine(adapter.shape.device)
    print(", ".join(f"{key} {value}" for key, value in context.items()))
    source = blocks(args, adapter)
    first_bytes = engine.cache.bytes_allocated
    rows: list[dict[str, object]] = []
    bytes_held = True
    warm = 0
    for number in range(1, args.blocks + 1):
        advance(engine, source, 1)
        watch.close_block()
        if number % args.ask_every == 0:
            engine.ask("what do you see now ?", max_new_tokens=4)
            watch.forget()
        bytes_held &= engine.cache.bytes_allocated == first_bytes
        if number == min(_WARM_UP, args.blocks):
            warm = resident_bytes()
        if number in (1, _WARM_UP) or number % max(1, args.blocks // 10) == 0:
            stats = engine.stats()
            rows.append(
                {
                    "block": number,
                    "tokens": stats.tokens_retained,
                    "compressions": stats.compressions,
                    "cache bytes": engine.cache.bytes_allocated,
                    "process MiB": f"{resident_bytes() / 2**20:.1f}",
                }
            )
    print_table(rows)
    growth = resident_bytes() / warm - 1.0
    verdicts = {
        f"most video tokens inside a forward pass: {watch.most} of {args.max_tokens}": (
            watch.most <= args.max_tokens
        ),
        f"cache bytes constant at {first_bytes}": bytes_held,
        f"process memory after block {_WARM_UP}: {growth:+.2%}": growth < _GROWTH,
    }
    for text, held in verdicts.items():
        print(("held    " if held else "BROKEN  ") + text)
    save(args.out, "soak", rows, {**context, "growth": growth, "most_tokens": watch.most})
    return 0 if all(verdicts.values()) else 1


class _WriteWatch:
    """Watches every write to a cache for the most video tokens that a layer ever saw."""

    def __init__(self, cache: SlabCache) -> None:
        self.most = 0
        self._seen = 0
        write = cache.write

        def watched(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            views = write(layer, keys, values)
            self._seen = max(self._seen, views[0].shape[1] - cache.prefix_tokens)
            return views

        cache.write = watched  # type: ignore[method-assign]

    def close_block(self) -> None:
        """Count what a block's forward pass showed."""
        self.most = max(self.most, self._seen)
        self._seen = 0

    def forget(self) -> None:
        """Leave out what a question showed: its tokens are not video."""
        self._seen = 0
