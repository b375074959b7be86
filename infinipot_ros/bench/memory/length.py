"""Does it matter how long a stream has run? The same tour, after a short and after a long quiet.

A longer stream with a longer tour would have other events at other distances. Here the last frames
of the long stream are the whole short one, so that events, delay, cap and questions are the same,
and all that differs is what was watched before: quiet that the memory has to forget, and positions
that run ahead to the model's limit and past it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infinipot_ros.bench.memory.answers import ALL, Answers
from infinipot_ros.bench.memory.plan import Cap, Job, Size, make_cap_of_steps, passes
from infinipot_ros.bench.memory.statistics import Estimate, difference, share, sign_flip_p
from infinipot_ros.bench.memory.streams import NOW, StreamSpec
from infinipot_ros.bench.memory.variants import Variant
from infinipot_ros.bench.memory.worker import Record

MODES = ("compact", "absolute")
_DELAY = 1


@dataclass(frozen=True)
class LengthFigure:
    """Accuracy after a short and a long stream.

    Attributes:
        steps: length of the long stream, steps.
        regime: or "all".
        positions: of the engine.
        kind: "all" about the tour, or "now".
        short: accuracy after the short stream.
        long: accuracy after the long one.
        change: paired difference, long less short.
        p: of the sign-flip test over streams.
        n: questions, the same to both.
        streams: pairs of streams.
    """

    steps: int
    regime: str
    positions: str
    kind: str
    short: Estimate
    long: Estimate
    change: Estimate
    p: float
    n: int
    streams: int


def length_variants(policy: str) -> tuple[Variant, ...]:
    """Return a policy with either kind of positions."""
    return tuple(Variant(mode, policy, engine={"positions": mode}) for mode in MODES)


def length_jobs(
    size: Size,
    *,
    model: str,
    device: str,
    seed: int,
    regimes: Sequence[str],
    policy: str,
    tokens_per_step: int,
) -> tuple[Cap, list[Job]]:
    """Return the cap and the jobs of the study, a stream of each length of every world."""
    variants = length_variants(policy)
    held = size.length_cap_steps
    cap = make_cap_of_steps(f"{held} steps", held, tokens_per_step, variants)
    jobs = []
    for number in range(size.length_streams):
        for regime in regimes:
            for steps in (size.short_steps, *size.long_steps):
                stream = StreamSpec(
                    regime,
                    number,
                    seed,
                    tour_steps=size.short_steps - held,
                    quiet_steps=held,
                    prelude_steps=steps - size.short_steps,
                )
                observers = passes(stream, [cap], variants, (_DELAY,))
                jobs.append(Job(model, device, stream, size.per_kind, observers))
    return cap, jobs


def length_figures(
    short: Sequence[Record],
    long: Sequence[Record],
    regimes: Sequence[str],
    cap: Cap,
    steps: int,
) -> list[LengthFigure]:
    """Compare the answers to streams that are there in both lengths, the long one of `steps`."""
    both = {(r.regime, r.stream) for r in short} & {(r.regime, r.stream) for r in long}
    if not both:
        return []
    ours, theirs = (
        Answers.of(
            [r for r in records if (r.regime, r.stream) in both],
            policies=MODES,
            caps=[cap.label],
            regimes=regimes,
        )
        for records in (long, short)
    )
    found = []
    for kind in (ALL, NOW):
        for regime in (*ours.regimes, ALL):
            for mode in ours.policies:
                a = ours.cell(mode, cap.label, (_DELAY,), kind, regime)
                b = theirs.cell(mode, cap.label, (_DELAY,), kind, regime)
                if not a.n or a.n != b.n:
                    continue
                found.append(
                    LengthFigure(
                        steps,
                        regime,
                        mode,
                        kind,
                        short=share(b.right, b.asked, b.strata),
                        long=share(a.right, a.asked, a.strata),
                        change=difference(a.right, b.right, a.asked, a.strata),
                        p=sign_flip_p(a.right - b.right),
                        n=a.n,
                        streams=len(a.right),
                    )
                )
    return found
