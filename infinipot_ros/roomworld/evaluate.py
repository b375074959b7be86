"""Measure the embedded model on held-out streams, from rendered pixels through the stream engine.

`python -m infinipot_ros.roomworld.evaluate --model roomworld --steps 32 --streams 40` renders tours
that no training has seen, observes them at two frames per second and asks questions of every kind
at the end. An answer counts only when it equals the true one to the letter.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.errors import InfinipotError
from infinipot_ros.roomworld import phrasings
from infinipot_ros.roomworld.questions import Question
from infinipot_ros.roomworld.regimes import REGIMES
from infinipot_ros.roomworld.scenes import Allowed, anywhere, trained
from infinipot_ros.roomworld.vocabulary import QUESTION_KINDS, held_out
from infinipot_ros.roomworld.world import RoomWorld, WorldFrame

FPS = 2.0
FRAMES_PER_STEP = 2
_HELD_OUT_SEED = 900_000_000
"""World seeds of evaluations start here; training draws its scenes from other generators."""
_Z95 = 1.959964
_ATTEMPTS = 4

PHRASINGS: dict[str, Sequence[int]] = {
    "all": phrasings.ALL,
    "trained": phrasings.TRAINED,
    "held_out": phrasings.HELD_OUT,
}
OBJECTS: dict[str, Allowed] = {"all": anywhere, "trained": trained, "held_out": held_out}


class Interval(NamedTuple):
    """A proportion with its 95 % Wilson score interval."""

    share: float
    low: float
    high: float


@dataclass
class Tally:
    """Right answers out of the questions asked, and the wrong ones to look at."""

    right: int = 0
    asked: int = 0
    mistakes: list[str] = field(default_factory=list)

    def add(self, question: Question, answer: str) -> None:
        """Count one answer."""
        self.asked += 1
        if answer == question.answer:
            self.right += 1
        else:
            self.mistakes.append(f"{question.text} {answer!r}, not {question.answer!r}")

    def interval(self) -> Interval:
        """Return the share of right answers with its interval."""
        return wilson(self.right, self.asked)


def wilson(right: int, asked: int) -> Interval:
    """Return right / asked with its 95 % Wilson score interval (E. B. Wilson, 1927).

    Raises ValueError when nothing was asked.
    """
    if asked < 1:
        raise ValueError("asked is 0; an interval needs at least one answer")
    share, z2 = right / asked, _Z95**2
    centre = (share + z2 / (2 * asked)) / (1 + z2 / asked)
    reach = _Z95 / (1 + z2 / asked) * math.sqrt(share * (1 - share) / asked + z2 / (4 * asked**2))
    return Interval(share, max(0.0, centre - reach), min(1.0, centre + reach))


@dataclass(frozen=True)
class Trial:
    """What streams and questions an evaluation draws.

    `tour_share` below 1 ends the tour earlier, so that everything asked about lies in the past.
    """

    steps: int
    streams: int
    seed: int = 0
    per_kind: int = 2
    tour_share: float = 1.0
    regime: str = "tour"
    phrasings: str = "all"
    objects: str = "all"


def questions_at_end(
    world: RoomWorld,
    time_ns: int,
    rng: np.random.Generator,
    per_kind: int,
    wordings: Sequence[int] = phrasings.ALL,
) -> Iterator[Question]:
    """Yield up to `per_kind` questions of every kind, about different facts known at `time_ns`."""
    for kind in QUESTION_KINDS:
        drawn = (world.ask(kind, time_ns, rng, wordings) for _ in range(_ATTEMPTS * per_kind))
        distinct = {q.fact: q for q in drawn if q is not None}
        yield from islice(distinct.values(), per_kind)


def held_out_stream(trial: Trial, number: int) -> tuple[RoomWorld, list[WorldFrame]]:
    """Return world `number` of an evaluation and its frames."""
    n_frames = trial.steps * FRAMES_PER_STEP
    world = RoomWorld(
        seed=_HELD_OUT_SEED + 100_000 * trial.seed + number,
        tour_s=n_frames / FPS * trial.tour_share,
        regime=trial.regime,
        allowed=OBJECTS[trial.objects],
    )
    return world, list(islice(world.frames(FPS), n_frames))


def evaluate(engine: StreamEngine, trial: Trial) -> dict[str, Tally]:
    """Return a tally per question kind over the held-out streams of a trial."""
    tallies = {kind: Tally() for kind in QUESTION_KINDS}
    for number in range(trial.streams):
        world, frames = held_out_stream(trial, number)
        engine.reset()
        engine.observe([frame.image for frame in frames], [frame.stamp_ns for frame in frames])
        rng = np.random.default_rng((trial.seed, trial.steps, number))
        wordings = PHRASINGS[trial.phrasings]
        for question in questions_at_end(world, frames[-1].stamp_ns, rng, trial.per_kind, wordings):
            tallies[question.kind].add(question, engine.ask(question.text).text)
    return tallies


def total(tallies: dict[str, Tally]) -> Tally:
    """Return the sum over all question kinds."""
    return Tally(
        right=sum(tally.right for tally in tallies.values()),
        asked=sum(tally.asked for tally in tallies.values()),
        mistakes=[mistake for tally in tallies.values() for mistake in tally.mistakes],
    )


def _format(name: str, tally: Tally) -> str:
    if not tally.asked:
        return f"{name:12s}      -  (n=0)"
    interval = tally.interval()
    return (
        f"{name:12s}  {interval.share:.3f}  (n={tally.asked}, "
        f"95 % interval {interval.low:.3f}..{interval.high:.3f})"
    )


def _report(arguments: argparse.Namespace, tallies: dict[str, Tally]) -> dict[str, object]:
    rows = {**tallies, "all": total(tallies)}
    settings = {key: value for key, value in vars(arguments).items() if key != "out"}
    results = {
        name: {**asdict(tally), **tally.interval()._asdict()}
        for name, tally in rows.items()
        if tally.asked
    }
    return {"settings": settings, "results": results}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infinipot_ros.roomworld.evaluate",
        description="Measure exact-match accuracy on held-out RoomWorld streams.",
    )
    parser.add_argument("--model", default="roomworld", help="embedded name, folder or hub id")
    parser.add_argument("--steps", type=int, default=32, help="temporal steps (seconds) a stream")
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--per-kind", type=int, default=2, help="questions of a kind and stream")
    parser.add_argument("--seed", type=int, default=0, help="chooses the held-out worlds")
    parser.add_argument("--policy", default="full", help="compression policy")
    parser.add_argument("--max-tokens", type=int, default=0, help="cap M, where there is one")
    parser.add_argument("--block-steps", type=int, default=4)
    parser.add_argument(
        "--tour-share", type=float, default=1.0, help="share of the stream in which objects appear"
    )
    parser.add_argument("--regime", default="tour", choices=REGIMES)
    parser.add_argument("--phrasings", default="all", choices=PHRASINGS)
    parser.add_argument("--objects", default="all", choices=OBJECTS)
    parser.add_argument("--mistakes", type=int, default=5, help="wrong answers to show")
    parser.add_argument("--out", type=Path, default=None, help="write the figures here as JSON")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the accuracy per kind and over all; return the process's exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if min(options.steps, options.streams, options.per_kind) < 1:
        parser.error("--steps, --streams and --per-kind take at least 1")
    if min(options.seed, options.mistakes) < 0:
        parser.error("--seed and --mistakes take at least 0")
    if not 0 < options.tour_share <= 1 or round(options.tour_share * options.steps * 1000) < 1:
        parser.error(f"--tour-share is {options.tour_share}; choose a share above 0, 1 at most")
    if options.out is not None and (options.out.is_dir() or not options.out.parent.is_dir()):
        parser.error(f"--out {options.out} cannot be written; name a file in a folder that exists")
    if options.policy != "full" and options.max_tokens < 1:
        parser.error(f"policy {options.policy} needs --max-tokens")
    cap = {"max_tokens": options.max_tokens} if options.max_tokens else {}
    try:
        config = EngineConfig(
            policy=options.policy, block_steps=options.block_steps, fps=FPS, max_new_tokens=8, **cap
        )
        engine = StreamEngine.from_pretrained(options.model, config)
    except InfinipotError as error:
        parser.error(str(error))
    chosen = {field.name: getattr(options, field.name) for field in fields(Trial)}
    tallies = evaluate(engine, Trial(**chosen))
    for name, tally in {**tallies, "all": total(tallies)}.items():
        print(_format(name, tally))
    for mistake in total(tallies).mistakes[: options.mistakes]:
        print(f"  wrong: {mistake}")
    if options.out is not None:
        report = json.dumps(_report(options, tallies), indent=2)
        options.out.write_text(report + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
