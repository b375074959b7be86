"""From options to jobs, and from their records to figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from infinipot_ros.bench.memory.answers import Answers
from infinipot_ros.bench.memory.encoded import encode_stream
from infinipot_ros.bench.memory.figures import Pair, pairs
from infinipot_ros.bench.memory.length import LengthFigure, length_figures, length_jobs
from infinipot_ros.bench.memory.options import Options
from infinipot_ros.bench.memory.plan import Cap, Job, make_cap, passes, refusal
from infinipot_ros.bench.memory.streams import StreamSpec, images
from infinipot_ros.bench.memory.variants import (
    BASE,
    FULL,
    Variant,
    ablation_variants,
    policy_variants,
)
from infinipot_ros.bench.memory.worker import Record
from infinipot_ros.core import EngineConfig
from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.core.errors import ConfigError, ModelError

_FRAMES_PER_STEP = 2


@dataclass(frozen=True)
class Study:
    """What will be run.

    Attributes:
        options: as the user gave them.
        variants: lines of the tables; `full` first.
        against: the variant that the others are compared with.
        caps: largest first.
        jobs: of the comparison of policies.
        length_policy: of the study of length: the package's default, or `against` where that is
            left out.
        length_cap: of the study of length, None where there is none.
        length_jobs: of the study of length.
        notes: what was left out, and why.
    """

    options: Options
    variants: tuple[Variant, ...]
    against: str
    caps: tuple[Cap, ...]
    jobs: tuple[Job, ...]
    length_policy: str
    length_cap: Cap | None
    length_jobs: tuple[Job, ...]
    notes: tuple[str, ...]

    @property
    def stem(self) -> str:
        """Return what the names of the files begin with."""
        return "memory_ablations" if self.options.ablations else "memory"


@dataclass(frozen=True)
class Results:
    """What was found.

    Attributes:
        records: every answer of the comparison.
        answers: the same, counted.
        pairs: paired differences.
        length: figures of the study of length, empty where there is none.
        complete: streams of each regime that were completed.
    """

    records: list[Record]
    answers: Answers
    pairs: list[Pair]
    length: list[LengthFigure]
    complete: Mapping[str, int]


def make_study(options: Options, adapter: ModelAdapter) -> Study:
    """Plan the run.

    Raises:
        ConfigError: a policy that the user named cannot work at a cap.
        ModelError: the model groups frames otherwise than the streams do.
    """
    if adapter.frames_per_step != _FRAMES_PER_STEP:
        raise ModelError(
            f"model {adapter.name!r} takes {adapter.frames_per_step} frames a step; "
            f"the benchmark's streams are for models that take {_FRAMES_PER_STEP}"
        )
    size = options.size
    probe = StreamSpec(options.regimes[0], 0, options.seed, size.tour_steps, quiet_steps=1)
    one_step = islice(images(probe, probe.world()), _FRAMES_PER_STEP)
    tokens_per_step = encode_stream(adapter, one_step).tokens_per_step
    bounded = ablation_variants() if options.ablations else policy_variants(options.policies)
    caps = tuple(make_cap(share, size.steps, tokens_per_step, bounded) for share in options.caps)
    reasons = {
        (variant.name, cap.label): reason
        for variant in bounded
        for cap in caps
        if (reason := refusal(variant, cap, tokens_per_step)) is not None
    }
    if reasons and options.named:
        raise ConfigError(f"--policy: {next(iter(reasons.values()))}")
    variants = (*policy_variants((FULL,)), *bounded)
    # Regimes take turns, so that an interrupted run has as many streams of each.
    jobs = tuple(
        Job(
            options.model,
            options.device,
            stream := StreamSpec(
                regime, number, options.seed, size.tour_steps, size.steps - size.tour_steps
            ),
            size.per_kind,
            passes(stream, caps, variants, left_out=reasons),
        )
        for number in range(options.streams)
        for regime in options.regimes
    )
    default = EngineConfig().policy
    length_policy = default if default in options.policies else options.against
    length_cap: Cap | None = None
    after: list[Job] = []
    if not options.ablations:
        length_cap, after = length_jobs(
            size,
            model=options.model,
            device=options.device,
            seed=options.seed,
            regimes=options.regimes,
            policy=length_policy,
            tokens_per_step=tokens_per_step,
        )
    against = BASE if options.ablations else options.against
    return Study(
        options,
        variants,
        against,
        caps,
        jobs,
        length_policy,
        length_cap,
        tuple(after),
        tuple(reasons.values()),
    )


def make_results(study: Study, results: Mapping[int, Sequence[Record]]) -> Results | None:
    """Return the figures of the jobs that were completed; None where there is too little.

    Args:
        study: what was run.
        results: records by the number of the job, those of `jobs` before those of `length_jobs`.
    """
    split = len(study.jobs)
    done = [number for number in results if number < split]
    records = [record for number in done for record in results[number]]
    complete = {
        regime: sum(study.jobs[number].stream.regime == regime for number in done)
        for regime in study.options.regimes
    }
    if not records:
        return None
    answers = Answers.of(
        records,
        policies=[variant.name for variant in study.variants],
        caps=[cap.label for cap in study.caps],
        regimes=study.options.regimes,
    )
    length: list[LengthFigure] = []
    if study.length_cap is not None:
        by_length: dict[int, list[Record]] = {}
        for number, job in enumerate(study.length_jobs, split):
            by_length.setdefault(job.stream.steps, []).extend(results.get(number, ()))
        short = by_length.pop(study.options.size.short_steps)
        for steps, long in by_length.items():
            length += length_figures(short, long, study.options.regimes, study.length_cap, steps)
    return Results(records, answers, pairs(answers, study.against), length, complete)
