"""The figures of a study: accuracies with intervals, paired differences with significance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from infinipot_ros.bench.memory.answers import ALL, Answers, Cell
from infinipot_ros.bench.memory.statistics import Estimate, difference, holm, share, sign_flip_p
from infinipot_ros.bench.memory.streams import NOW
from infinipot_ros.bench.memory.variants import FULL

LATER = "later"
"""All delays above 0 together."""
BEST = "best"
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers of a policy in one cell."""

    regime: str
    policy: str
    cap: str
    delay: str
    kind: str
    share: Estimate
    n: int
    streams: int


@dataclass(frozen=True)
class Pair:
    """Paired difference of a policy and another one, over the same questions to the same streams.

    Attributes:
        reference: "best" where the other is the best bounded policy of the cell, else its name.
        against: name of the other.
        p: of the sign-flip test over streams.
        p_holm: adjusted for all policies and caps of the regime, delay and reference.
    """

    regime: str
    cap: str
    delay: str
    policy: str
    reference: str
    against: str
    difference: Estimate
    p: float
    p_holm: float
    n: int
    streams: int

    @property
    def significant(self) -> bool:
        """Whether the difference stands after adjustment."""
        return self.p_holm < SIGNIFICANT


def spans(answers: Answers, cap: str) -> dict[str, tuple[int, ...]]:
    """Return the delays at a cap by label: each alone, and all above 0 together."""
    found: dict[str, tuple[int, ...]] = {str(d): (d,) for d in answers.delays_at(cap)}
    later = answers.later(cap)
    return {**found, LATER: later} if later else found


def fresh_and_later(answers: Answers, cap: str) -> dict[str, tuple[int, ...]]:
    """Return the two spans of a table, without what there is none of."""
    return {label: span for label, span in spans(answers, cap).items() if label in ("0", LATER)}


def accuracy(
    answers: Answers, policy: str, cap: str, span: Sequence[int], kind: str, regime: str
) -> tuple[Estimate, Cell] | None:
    """Return a share with its interval and what it was counted from; None where nothing was."""
    cell = answers.cell(policy, cap, span, kind, regime)
    if not cell.n:
        return None
    # Questions about the tour come again at each delay, those about the present are always others.
    repeats = 1 if kind == NOW else len(span)
    return share(cell.right, cell.asked, cell.strata, repeats), cell


def accuracies(answers: Answers) -> Iterator[Accuracy]:
    """Yield the accuracy of every regime, policy, cap, delay and kind, and of all together."""
    for regime in (*answers.regimes, ALL):
        for cap in answers.caps:
            for policy in answers.policies:
                for label, span in spans(answers, cap).items():
                    for kind in (ALL, *answers.kinds):
                        found = accuracy(answers, policy, cap, span, kind, regime)
                        if found is None:
                            continue
                        value, cell = found
                        yield Accuracy(
                            regime, policy, cap, label, kind, value, cell.n, len(cell.right)
                        )


def _right(answers: Answers, cap: str, span: Sequence[int], regime: str) -> dict[str, int]:
    """Return right answers about the tour of the bounded policies, all to the same questions."""
    cells = {
        policy: answers.cell(policy, cap, span, ALL, regime)
        for policy in answers.policies
        if policy != FULL
    }
    return {policy: int(cell.right.sum()) for policy, cell in cells.items() if cell.n}


def best(answers: Answers, cap: str, span: Sequence[int], regime: str) -> str | None:
    """Return the bounded policy with most right answers about the tour; the first of equals."""
    right = _right(answers, cap, span, regime)
    return max(right, key=lambda policy: right[policy]) if right else None


def leaders(answers: Answers, cap: str, span: Sequence[int], regime: str) -> set[str]:
    """Return all bounded policies that are as good as the best of a cell, none where all are."""
    right = _right(answers, cap, span, regime)
    top = {policy for policy, number in right.items() if number == max(right.values())}
    return top if len(top) < len(right) else set()


def pairs(answers: Answers, against: str) -> list[Pair]:
    """Return every policy against `against`, against the best of its cell and against `full`."""
    found: list[Pair] = []
    for regime in (*answers.regimes, ALL):
        for cap in answers.caps:
            for label, span in spans(answers, cap).items():
                references = {against: against, FULL: FULL}
                leader = best(answers, cap, span, regime)
                if leader is not None:
                    references[BEST] = leader
                for reference, other in references.items():
                    for policy in answers.policies:
                        if policy == other or (policy == FULL and reference == BEST):
                            continue
                        pair = _pair(answers, (regime, cap, label), span, policy, reference, other)
                        if pair is not None:
                            found.append(pair)
    return _adjusted(found)


def _pair(
    answers: Answers,
    cell: tuple[str, str, str],
    span: Sequence[int],
    policy: str,
    reference: str,
    other: str,
) -> Pair | None:
    regime, cap, label = cell
    if not {policy, other} <= set(answers.policies):
        return None
    ours = answers.cell(policy, cap, span, ALL, regime)
    theirs = answers.cell(other, cap, span, ALL, regime)
    if not ours.n or ours.n != theirs.n:
        return None
    p = sign_flip_p(ours.right - theirs.right)
    return Pair(
        regime,
        cap,
        label,
        policy,
        reference,
        other,
        difference(ours.right, theirs.right, ours.asked, ours.strata),
        p=p,
        p_holm=p,
        n=ours.n,
        streams=len(ours.right),
    )


def _adjusted(found: Sequence[Pair]) -> list[Pair]:
    """Adjust p for the number of comparisons that are read together."""
    families: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for index, pair in enumerate(found):
        families[pair.regime, pair.cap, pair.delay, pair.reference].append(index)
    result = list(found)
    for family in families.values():
        for index, p in zip(family, holm([found[i].p for i in family]), strict=True):
            result[index] = replace(found[index], p_holm=p)
    return result
