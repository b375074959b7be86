"""The planner's figures against what a real engine allocates.

Allocations are counted one by one, as the profiler of torch reports them: the peaks are exact and
the same on every run, where the memory of the process would also show what Python and the
allocator keep.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from infinipot_ros.core import EngineConfig

if TYPE_CHECKING:
    from infinipot_ros.core import StreamEngine

_SEED = 20
_QUESTION = "where did you see the red mug? "
_SIZES = ("weights", "cache", "encode", "block", "question")


@dataclass(frozen=True)
class Sizes:
    """Bytes, planned or measured.

    Attributes:
        weights: of all parameters.
        cache: that the engine's cache allocated.
        encode: peak of the vision encoder over a block, beside both.
        block: peak of observing a block, likewise, the worst of a whole cycle of compressions.
        question: peak of asking a question, likewise.
    """

    weights: int
    cache: int
    encode: int
    block: int
    question: int


@dataclass(frozen=True)
class Check:
    """A model's figures side by side.

    Attributes:
        planned: from its config files.
        measured: of a running engine.
    """

    planned: Sizes
    measured: Sizes

    def errors(self) -> dict[str, float]:
        """Return planned / measured - 1 for each size."""
        return {
            name: getattr(self.planned, name) / getattr(self.measured, name) - 1 for name in _SIZES
        }


def check_plan(
    model: str, config: EngineConfig, *, dtype: str = "float32", attention: str = "sdpa"
) -> Check:
    """Plan a model, run it on the CPU, and return both.

    Args:
        model: folder of a model small enough to run here, or the embedded one.
        config: of the engine; the default policy.
        dtype: of the weights.
        attention: ``sdpa`` or ``eager``.

    Raises:
        ConfigError: the configuration cannot work with the model.
        ModelError: the model cannot be loaded or planned.
    """
    import torch

    from infinipot_ros.core import StreamEngine
    from infinipot_ros.models.sources import ModelFiles
    from infinipot_ros.models.weights import loaded_bytes, read_weights

    torch.set_num_threads(1)  # every thread of an attention kernel has a tile of its own
    engine = StreamEngine.from_pretrained(
        model, config, device="cpu", dtype=dtype, attn_implementation=attention
    )
    stream = _Stream(engine)
    # The first compression builds tables that stay; a whole cycle after it holds every case.
    while engine.stats().compressions < 1:
        stream.observe()
    block, question = 0, _peak(stream.ask)
    while engine.stats().compressions < 2:
        block = max(block, _peak(stream.observe))
        # When the cache is at its fullest, a question is at its largest too.
        question = max(question, _peak(stream.ask))
    weights = loaded_bytes(read_weights(ModelFiles.of(model)).values(), engine.adapter.shape.dtype)
    measured = Sizes(weights, engine.cache.bytes_allocated, _peak(stream.encode), block, question)
    return Check(_planned(model, engine, stream, dtype=dtype, attention=attention), measured)


class _Stream:
    """A camera that shows noise, and questions about it."""

    def __init__(self, engine: StreamEngine) -> None:
        self._engine = engine
        preprocess: Any = engine.adapter.preprocessor(0, engine.config.max_pixels)
        self._preprocess = preprocess
        self._random = np.random.default_rng(_SEED)
        self._frames = engine.config.block_steps * engine.adapter.frames_per_step
        self._seen = 0
        size = getattr(preprocess, "fixed_size", None)
        if size is None and hasattr(preprocess, "target_size"):
            # As large as frames can be, with the aspect of a camera.
            size = preprocess.target_size(1200, 1600)
        self.size = size or (preprocess.height, preprocess.width)
        limit = engine.config.max_question_tokens
        words = _QUESTION
        while engine.adapter.count_question_tokens(words + _QUESTION) <= limit:
            words += _QUESTION
        self.question = words

    def observe(self) -> None:
        """Show one block."""
        frames = self._noise()
        stamps = [
            round(1e9 * (self._seen + n) / self._engine.config.fps) for n in range(len(frames))
        ]
        self._engine.observe(frames, stamps)
        self._seen += len(frames)

    def ask(self) -> None:
        """Ask a question that is about as long as may be."""
        self._engine.ask(self.question, max_new_tokens=2)

    def encode(self) -> None:
        """Run the vision encoder over one block."""
        import torch

        pixels, grid = self._preprocess(list(self._noise()))
        with torch.inference_mode():
            self._engine.adapter.encode(torch.from_numpy(pixels), grid)

    def _noise(self) -> NDArray[np.uint8]:
        shape = (self._frames, *self.size, 3)
        return self._random.integers(0, 256, shape, dtype=np.uint8)

    def grid(self) -> tuple[int, int]:
        """Return rows and columns of video tokens of a step."""
        cache = self._engine.cache
        return int(cache.rows.max()) + 1, int(cache.cols[cache.rows >= 0].max()) + 1


def _planned(
    model: str, engine: StreamEngine, stream: _Stream, *, dtype: str, attention: str
) -> Sizes:
    from infinipot_ros.planning import Load, find_model, make_plan
    from infinipot_ros.planning.frames import StepShape

    adapter, config = engine.adapter, engine.config
    files = find_model(model)
    rows, cols = stream.grid()
    frames = adapter.frames_per_step
    patches = round(rows * cols * files.figures.vision.merge**2)
    video_end = adapter.video_end()
    asked = len(adapter.question_ids(stream.question))
    plan = make_plan(
        files,
        Load(
            cap=config.max_tokens,
            dtype=dtype,
            attention=attention,
            block_steps=config.block_steps,
            fps=config.fps,
            retain_ratio=config.retain_ratio,
            prefix_tokens=engine.cache.prefix_tokens,
            reserve_tokens=engine.cache.reserve_tokens,
            asked_tokens=asked + (0 if video_end is None else len(video_end)),
        ),
        step=StepShape(frames, patches, rows * cols, rows, cols, _step_text(engine), 0),
    )
    return Sizes(plan.weights, plan.cache, plan.encode, plan.block, plan.question)


def _step_text(engine: StreamEngine) -> int:
    """Return the tokens of text of the newest step."""
    cache = engine.cache
    newest = cache.steps[0, 0] == cache.steps[0, 0, -1]
    return int((newest & (cache.rows[0, 0] < 0)).sum())


def _peak(run: Callable[[], None]) -> int:
    """Return the most bytes that torch has allocated on the CPU during a call, at a time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [
        (event.start_ns(), event.nbytes())
        for event in profiler.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    events.sort(key=lambda event: event[0])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--model", default="roomworld", help="folder of a small model")
    parser.add_argument("--cap", type=int, default=1024, help="tokens a layer and head")
    parser.add_argument("--block-steps", type=int, default=4, help="steps encoded together")
    parser.add_argument("--dtype", default="float32", help="of the weights")
    parser.add_argument("--attn-implementation", default="sdpa", help="sdpa or eager")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Compare planned with measured bytes and print both."""
    check = check_plan(
        args.model,
        EngineConfig(max_tokens=args.cap, block_steps=args.block_steps),
        dtype=args.dtype,
        attention=args.attn_implementation,
    )
    errors = check.errors()
    if args.json:
        print(json.dumps({"planned": vars(check.planned), "measured": vars(check.measured)}))
        return 0
    print(f"{'':10}{'planned':>14}{'measured':>14}{'error':>9}")
    for name in _SIZES:
        planned, measured = getattr(check.planned, name), getattr(check.measured, name)
        print(f"{name:10}{planned:>14,}{measured:>14,}{errors[name]:>8.1%}")
    return 0
