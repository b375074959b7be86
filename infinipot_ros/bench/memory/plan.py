"""What a run does: streams, caps, passes and the moments of questions; all sizes in one place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from infinipot_ros.bench.memory.streams import StreamSpec
from infinipot_ros.bench.memory.variants import FULL, Variant
from infinipot_ros.compression import PolicyError, make_policy
from infinipot_ros.core.errors import ConfigError

DELAYS = (0, 1, 4, 16)
"""When is asked about the tour: at its end, and after so many times the steps a cap can hold."""
NOW_QUESTIONS = 2
BLOCK_STEPS = (4, 2, 1)
SMALLEST_CAP_STEPS = 4
"""A block of one step must fit in the quarter of the cap that a compression frees."""
_STEP_MS, _BLOCK_MS, _QUESTION_MS, _ENCODE_MS = 0.8, 2.4, 2.8, 1.3
"""What observing a step, a block more, a question, and rendering and encoding a step took on one
core of our machine: for the forecast only."""


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        steps: length T of a stream, steps of a second, two frames each.
        tour_steps: its first E steps, in which all events lie.
        caps: caps by default, shares of the T * tokens_per_step tokens that a stream needs.
        ablation_caps: likewise, for the ablations.
        streams: streams of each regime.
        per_kind: questions of each kind that are drawn for a stream.
        short_steps: length that the study of length compares others with.
        long_steps: these others, ascending.
        length_cap_steps: its cap, in steps' worth of tokens, and its delay in steps.
        length_streams: its streams of each regime.
    """

    steps: int
    tour_steps: int
    caps: tuple[Fraction, ...]
    ablation_caps: tuple[Fraction, ...]
    streams: int
    per_kind: int
    short_steps: int
    long_steps: tuple[int, ...]
    length_cap_steps: int
    length_streams: int


WHOLE = Size(
    steps=512,
    tour_steps=128,
    caps=tuple(Fraction(1, n) for n in (4, 8, 16, 32, 64)),
    ablation_caps=(Fraction(1, 16),),
    streams=12,
    per_kind=2,
    short_steps=128,
    long_steps=(1024, 2048),
    length_cap_steps=36,
    length_streams=8,
)
QUICK = Size(
    steps=128,
    tour_steps=32,
    caps=(Fraction(1, 4), Fraction(1, 16)),
    ablation_caps=(Fraction(1, 8),),
    streams=3,
    per_kind=1,
    short_steps=64,
    long_steps=(640,),
    length_cap_steps=16,
    length_streams=2,
)


@dataclass(frozen=True)
class Cap:
    """A cap of one run.

    Attributes:
        label: what it is called in tables, "1/16".
        steps: whole steps that it can hold.
        max_tokens: M.
        block_steps: steps of a block at this cap, for every policy.
    """

    label: str
    steps: int
    max_tokens: int
    block_steps: int


@dataclass(frozen=True)
class Moment:
    """A moment of questions.

    Attributes:
        step: after so many steps of the stream.
        cells: (cap label, delay) that the answers count for; several for `full` only.
    """

    step: int
    cells: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Pass:
    """One engine that observes a stream and is asked at some moments."""

    variant: Variant
    max_tokens: int
    block_steps: int
    moments: tuple[Moment, ...]


@dataclass(frozen=True)
class Job:
    """One stream with everything that observes it; what a worker process takes at a time."""

    model: str
    device: str
    stream: StreamSpec
    per_kind: int
    passes: tuple[Pass, ...]

    @property
    def steps(self) -> int:
        """Return the steps to observe in all passes."""
        return sum(one.moments[-1].step for one in self.passes)

    def questions(self, n_kinds: int) -> int:
        """Return the most questions that will be asked, of `n_kinds` kinds about the tour."""
        at_once = n_kinds * self.per_kind + NOW_QUESTIONS
        return at_once * sum(len(one.moments) for one in self.passes)

    def forecast_s(self, n_kinds: int) -> float:
        """Return about how many seconds of a core the job takes."""
        blocks = sum(one.moments[-1].step / one.block_steps for one in self.passes)
        observed = self.steps * _STEP_MS + blocks * _BLOCK_MS + self.stream.steps * _ENCODE_MS
        return (observed + self.questions(n_kinds) * _QUESTION_MS) / 1000


def make_cap(share: Fraction, steps: int, tokens_per_step: int, variants: Sequence[Variant]) -> Cap:
    """Return the cap of a share of `steps` steps, with blocks that suit every variant.

    Raises:
        ConfigError: the share is too small for any block.
    """
    held = int(share * steps)
    if held < SMALLEST_CAP_STEPS:
        raise ConfigError(
            f"cap {share} of {steps} steps holds {held}; it must hold {SMALLEST_CAP_STEPS}: "
            f"choose {Fraction(SMALLEST_CAP_STEPS, steps)} or more"
        )
    return make_cap_of_steps(str(share), held, tokens_per_step, variants)


def make_cap_of_steps(
    label: str, held: int, tokens_per_step: int, variants: Sequence[Variant]
) -> Cap:
    """Return a cap of so many steps' worth of tokens, with the largest blocks that suit all.

    Variants that no block suits do not count; `refusal` says why.
    """
    sizes = [Cap(label, held, held * tokens_per_step, block_steps) for block_steps in BLOCK_STEPS]
    refused = {
        cap.block_steps: {v.name for v in variants if refusal(v, cap, tokens_per_step)}
        for cap in sizes
    }
    hopeless = refused[BLOCK_STEPS[-1]]
    return next(cap for cap in sizes if refused[cap.block_steps] <= hopeless)


def refusal(variant: Variant, cap: Cap, tokens_per_step: int) -> str | None:
    """Return why the variant cannot work at a cap, None where it can."""
    if variant.policy == FULL:
        return None
    try:
        config = variant.config(max_tokens=cap.max_tokens, block_steps=cap.block_steps, seed=0)
        config.check_block(tokens_per_step)
        make_policy(config.policy, config.policy_params, config.seed).check(
            max_tokens=cap.max_tokens,
            target_tokens=config.target_tokens,
            tokens_per_step=tokens_per_step,
        )
    except (ConfigError, PolicyError) as error:
        return f"{variant.name} cannot work at cap {cap.label}: {error}"
    return None


def moments(cap: Cap, stream: StreamSpec, delays: Sequence[int] = DELAYS) -> tuple[Moment, ...]:
    """Return when is asked at a cap: delays that the stream is long enough for."""
    fresh = stream.prelude_steps + stream.tour_steps
    return tuple(
        Moment(fresh + delay * cap.steps, ((cap.label, delay),))
        for delay in delays
        if fresh + delay * cap.steps <= stream.steps
    )


def passes(
    stream: StreamSpec,
    caps: Sequence[Cap],
    variants: Sequence[Variant],
    delays: Sequence[int] = DELAYS,
    left_out: Collection[tuple[str, str]] = (),
) -> tuple[Pass, ...]:
    """Return what observes a stream: every bounded variant at every cap, `full` once for all.

    `left_out`: pairs (variant's name, cap's label) that cannot work.
    """
    found: list[Pass] = []
    for variant in variants:
        if variant.policy == FULL:
            cells: dict[int, tuple[tuple[str, int], ...]] = {}
            for cap in caps:
                for moment in moments(cap, stream, delays):
                    cells[moment.step] = cells.get(moment.step, ()) + moment.cells
            at = tuple(Moment(step, cells[step]) for step in sorted(cells))
            found.append(Pass(variant, caps[0].max_tokens, BLOCK_STEPS[0], at))
            continue
        found += [
            Pass(variant, cap.max_tokens, cap.block_steps, moments(cap, stream, delays))
            for cap in caps
            if (variant.name, cap.label) not in left_out
        ]
    return tuple(found)


def forecast(jobs: Sequence[Job], n_kinds: int, workers: int) -> str:
    """Say how much is to do, and about how long it takes."""
    asked = sum(job.questions(n_kinds) for job in jobs)
    seconds = sum(job.forecast_s(n_kinds) for job in jobs) / max(1, min(workers, len(jobs)))
    took = f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
    return (
        f"{len(jobs)} streams, {sum(len(job.passes) for job in jobs)} passes over them, "
        f"{sum(job.steps for job in jobs):,} steps to observe, at most {asked:,} questions; "
        f"about {took} with {workers} process{'' if workers == 1 else 'es'}"
    )
