"""The summary in Markdown: tables, what was run, who differs from whom, where it fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infinipot_ros.bench.memory.answers import ALL
from infinipot_ros.bench.memory.figures import LATER, Pair, accuracy, best, fresh_and_later
from infinipot_ros.bench.memory.length import LengthFigure
from infinipot_ros.bench.memory.study import Results, Study
from infinipot_ros.bench.memory.tables import (
    cap_title,
    interval,
    markdown,
    markdown_table,
    p_value,
    signed,
)
from infinipot_ros.bench.memory.variants import ABLATIONS, FULL

_METHOD = """\
Score: an answer is right when it equals the true one to the letter. Questions about the tour are
drawn once for a stream and asked again, the same ones, at each delay; "now" questions have their
truth at each moment and are counted apart. Fresh: asked at the end of the tour. Later: after 1, 4
and 16 times the steps that the cap can hold, where the stream is long enough, all together.
Guessing: always the commonest answer of a kind. Intervals are 95 %, by a bootstrap over streams
(within regimes); where all answers are right, or all wrong, they are Wilson's over questions.
Differences are paired, over the same questions to the same streams; p is of the exact sign-flip
test over streams, adjusted by Holm's method for all policies at a cap in a regime. The best
policy of a cell (bold) is chosen by the same answers that it is compared by, so its lead is
somewhat flattered. Bounded policies hold equally many tokens when they are asked, but for `recent`,
which keeps its few steps whatever the cap, and for other values of `retain_ratio`, which are met
more or less filled. After the tour nothing is in view: the truth of a later "now" question is "no"
or "nothing", and wrong is who takes for present what was seen before."""


def markdown_report(
    study: Study, results: Results, context: Mapping[str, object], status: str
) -> str:
    """Return the whole summary.

    Args:
        study: what was to be run.
        results: what was found.
        context: of the run: versions, machine, time.
        status: whether it is complete.
    """
    ablations = study.options.ablations
    title = "Ablations of InfiniPot-V" if ablations else "What bounded memory keeps"
    parts = [f"# {title}", status, "## What was run", _run(study, results, context), _METHOD]
    if ablations:
        parts += list(_ablation_tables(study, results))
    else:
        parts += list(_tables(study, results))
        several = any(len(results.answers.delays_at(cap)) > 1 for cap in results.answers.caps)
        plots = ("cap", "delay") if several else ("cap",)
        parts += [f"![accuracy by {name}]({study.stem}_by_{name}.png)" for name in plots]
        parts += [f"## Who differs from `{study.against}`", *_separations(study, results)]
        parts += ["## Where capped memory fails", *_failures(study, results)]
        if results.length:
            parts += ["## Length of the stream", *_length(study, results.length)]
    if study.notes:
        parts += ["## Left out", "\n".join(f"- {note}" for note in study.notes)]
    return "\n\n".join(parts) + "\n"


def _run(study: Study, results: Results, context: Mapping[str, object]) -> str:
    options, size = study.options, study.options.size
    streams = ", ".join(f"{regime} {n}" for regime, n in results.complete.items())
    rows = {
        "model": options.model,
        "seed": options.seed,
        "streams": f"{streams}; each {size.steps} steps = {2 * size.steps} frames, events in the "
        f"first {size.tour_steps} steps",
        "questions": f"up to {size.per_kind} of each kind a stream; {len(results.records):,} "
        "answers",
        "caps": ", ".join(f"{c.label} = {c.max_tokens} tokens" for c in study.caps),
        **context,
    }
    return markdown(["what", "value"], [[str(k), str(v)] for k, v in rows.items()], texts=2)


def _tables(study: Study, results: Results) -> Iterator[str]:
    for cap in study.caps:
        if cap.label not in results.answers.caps:
            continue
        yield f"## {cap_title(cap)[0].upper()}{cap_title(cap)[1:]}"
        for label in fresh_and_later(results.answers, cap.label):
            delays = ", ".join(f"{delay}x" for delay in results.answers.later(cap.label))
            yield "Fresh:" if label == "0" else f"Later ({delays} the cap):"
            yield markdown_table(results.answers, cap.label, label)


def _last_span(results: Results, cap: str) -> str:
    return LATER if results.answers.later(cap) else "0"


def _separations(study: Study, results: Results) -> Iterator[str]:
    """Say who is significantly better or worse than the policy that all are compared with."""
    yield "Significant differences (p below 0.05 after Holm), questions asked later."
    regimes = (*results.answers.regimes, ALL)
    rows = []
    for cap in results.answers.caps:
        row = [cap]
        for regime in regimes:
            there = [
                pair
                for pair in results.pairs
                if (pair.regime, pair.cap, pair.reference) == (regime, cap, study.against)
                and pair.delay == _last_span(results, cap)
                and pair.policy != FULL
                and pair.significant
            ]
            row.append(_better_and_worse(there))
        rows.append(row)
    yield markdown(["cap", *regimes], rows, texts=1 + len(regimes))


def _better_and_worse(pairs: Sequence[Pair]) -> str:
    ordered = sorted(pairs, key=lambda pair: -pair.difference.value)
    better = [f"{p.policy} {p.difference.value:+.2f}" for p in ordered if p.difference.value > 0]
    worse = [f"{p.policy} {p.difference.value:+.2f}" for p in ordered if p.difference.value < 0]
    parts = [f"{word}: {', '.join(n)}" for word, n in (("better", better), ("worse", worse)) if n]
    return "; ".join(parts) or "nobody"


def _failures(study: Study, results: Results) -> Iterator[str]:
    """Say where even the best bounded policy is below the whole memory, and at which questions."""
    answers = results.answers
    to_full = {
        (pair.regime, pair.cap, pair.delay, pair.policy): pair
        for pair in results.pairs
        if pair.reference == FULL
    }
    rows = []
    for regime in (*answers.regimes, ALL):
        for cap in answers.caps:
            label = _last_span(results, cap)
            leader = best(answers, cap, fresh_and_later(answers, cap)[label], regime)
            pair = to_full.get((regime, cap, label, leader or ""))
            if pair is not None and pair.significant and pair.difference.value < 0:
                shown = [signed(pair.difference), p_value(pair.p_holm)]
                rows.append([regime, cap, f"`{pair.policy}`", *shown])
    if rows:
        yield "The best bounded policy is significantly below `full`, questions asked later:"
        yield markdown(["regime", "cap", "best policy", "difference", "p (Holm)"], rows, texts=3)
    else:
        yield "Nowhere is the best bounded policy significantly below the whole memory."
    for policy in dict.fromkeys((FULL, study.against)):
        yield f"`{policy}`, by kind of question, over all regimes, asked later:"
        yield _by_kind(results, policy)


def _by_kind(results: Results, policy: str) -> str:
    """Return accuracies of one policy: a row a cap, a column a kind."""
    answers = results.answers
    rows = []
    for cap in answers.caps:
        span = fresh_and_later(answers, cap)[_last_span(results, cap)]
        found = [accuracy(answers, policy, cap, span, kind, ALL) for kind in answers.kinds]
        rows.append([cap, *(f"{one[0].value:.2f}" if one else "-" for one in found)])
    return markdown(["cap", *answers.kinds], rows)


def _length(study: Study, figures: Sequence[LengthFigure]) -> Iterator[str]:
    size, cap = study.options.size, study.length_cap
    assert cap is not None
    yield (
        f"The same tour, asked about {cap.steps} steps after its end, policy "
        f"`{study.length_policy}` at {cap.max_tokens} tokens ({cap.steps} steps): in a stream of "
        f"{2 * size.short_steps} frames, and at the end of longer ones that show the quiet first. "
        "p is not adjusted."
    )
    titles = ["regime", "kind", "positions", f"{2 * size.short_steps} frames"]
    titles += ["frames", "accuracy then", "change", "p", "questions"]
    rows = [
        [
            f.regime,
            f.kind,
            f.positions,
            interval(f.short),
            f"{2 * f.steps:,}",
            interval(f.long),
            signed(f.change),
            p_value(f.p),
            str(f.n),
        ]
        for f in figures
        if ALL in (f.regime, f.kind)
    ]
    yield markdown(titles, rows, texts=3)


def _ablation_tables(study: Study, results: Results) -> Iterator[str]:
    answers = results.answers
    for cap in study.caps:
        if cap.label not in answers.caps:
            continue
        yield f"## {cap_title(cap)[0].upper()}{cap_title(cap)[1:]}"
        label = _last_span(results, cap.label)
        yield (
            f"Accuracy later, by regime; last the difference to `{study.against}` over all regimes."
        )
        compared = {
            pair.policy: pair
            for pair in results.pairs
            if (pair.regime, pair.cap, pair.delay, pair.reference)
            == (ALL, cap.label, label, study.against)
        }
        span = fresh_and_later(answers, cap.label)[label]
        regimes = (*answers.regimes, ALL)
        groups = {**ABLATIONS, "reference": tuple(v for v in study.variants if v.name == FULL)}
        rows = []
        for group, variants in groups.items():
            for variant in variants:
                if variant.name not in answers.policies:
                    continue
                found = [accuracy(answers, variant.name, cap.label, span, ALL, r) for r in regimes]
                pair = compared.get(variant.name)
                rows.append(
                    [group, variant.name, *(f"{one[0].value:.2f}" if one else "-" for one in found)]
                    + ([signed(pair.difference), p_value(pair.p_holm)] if pair else ["", ""])
                )
                group = ""
        yield markdown(["group", "variant", *regimes, "difference", "p (Holm)"], rows, texts=2)
