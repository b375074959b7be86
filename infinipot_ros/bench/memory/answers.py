"""Right answers and questions by policy, cap, delay, kind and stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from infinipot_ros.bench.memory.statistics import Counts
from infinipot_ros.bench.memory.streams import NOW, TOUR_KINDS
from infinipot_ros.bench.memory.worker import Record

ALL = "all"
"""All kinds of question about the tour ("now" is apart), or all regimes."""


@dataclass(frozen=True)
class Cell:
    """Counts of each stream, streams of one regime next to each other.

    Attributes:
        right: right answers.
        asked: questions.
        strata: streams of each regime.
    """

    right: Counts
    asked: Counts
    strata: tuple[int, ...]

    @property
    def n(self) -> int:
        """Return the number of questions."""
        return int(self.asked.sum())


@dataclass(frozen=True)
class Answers:
    """All answers of a study.

    Attributes:
        policies: names of variants, in the order of the tables.
        caps: labels of caps, in the order of the tables.
        delays: ascending.
        kinds: of questions.
        regimes: in the order of the tables.
        streams: (regime, number) of each stream, by regime.
        counts: [2, policies, caps, delays, kinds, streams], right answers and questions.
        guessing: by regime, the share of questions about the tour that who always gives a kind's
            commonest answer, over all regimes, has right.
    """

    policies: tuple[str, ...]
    caps: tuple[str, ...]
    delays: tuple[int, ...]
    kinds: tuple[str, ...]
    regimes: tuple[str, ...]
    streams: tuple[tuple[str, int], ...]
    counts: Counts
    guessing: dict[str, float]

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        *,
        policies: Sequence[str],
        caps: Sequence[str],
        regimes: Sequence[str],
    ) -> Answers:
        """Count records; policies, caps and regimes give the order, those without are left out."""
        seen = {name: {getattr(r, name) for r in records} for name in ("policy", "cap", "regime")}
        policies = tuple(policy for policy in policies if policy in seen["policy"])
        caps = tuple(cap for cap in caps if cap in seen["cap"])
        regimes = tuple(regime for regime in regimes if regime in seen["regime"])
        kinds = tuple(k for k in (*TOUR_KINDS, NOW) if k in {r.kind for r in records})
        delays = tuple(sorted({record.delay for record in records}))
        streams = tuple(
            sorted({(r.regime, r.stream) for r in records}, key=lambda s: (regimes.index(s[0]), s))
        )
        counts = np.zeros(
            (2, len(policies), len(caps), len(delays), len(kinds), len(streams)), dtype=np.int64
        )
        order: tuple[Sequence[object], ...] = (policies, caps, delays, kinds, streams)
        axes = [{value: index for index, value in enumerate(values)} for values in order]
        for r in records:
            values = (r.policy, r.cap, r.delay, r.kind, (r.regime, r.stream))
            place = tuple(axis[value] for axis, value in zip(axes, values, strict=True))
            counts[0][place] += r.right
            counts[1][place] += 1
        guessing = _guessing(records, regimes)
        return cls(policies, caps, delays, kinds, regimes, streams, counts, guessing)

    def cell(self, policy: str, cap: str, delays: Sequence[int], kind: str, regime: str) -> Cell:
        """Return the counts of a policy at a cap, summed over delays and kinds where several.

        Args:
            policy: name of a variant.
            cap: label of a cap.
            delays: those to sum over.
            kind: a kind of question, or `ALL` for all about the tour.
            regime: a regime, or `ALL`.
        """
        kinds = [self.kinds.index(k) for k in self.kinds if k == kind or (kind == ALL and k != NOW)]
        at = [self.delays.index(delay) for delay in delays]
        wanted = [i for i, (name, _) in enumerate(self.streams) if regime in (ALL, name)]
        part = self.counts[:, self.policies.index(policy), self.caps.index(cap)]
        right, asked = part[:, at][:, :, kinds][..., wanted].sum((1, 2))
        sizes = Counter(self.streams[i][0] for i in wanted)
        return Cell(right, asked, tuple(sizes[name] for name in self.regimes if sizes[name]))

    def delays_at(self, cap: str) -> tuple[int, ...]:
        """Return the delays at which questions were asked at a cap."""
        asked = self.counts[1, :, self.caps.index(cap)].sum((0, 2, 3))
        return tuple(delay for delay, n in zip(self.delays, asked, strict=True) if n)

    def later(self, cap: str) -> tuple[int, ...]:
        """Return the delays above 0 at a cap."""
        return tuple(delay for delay in self.delays_at(cap) if delay > 0)


def _guessing(records: Sequence[Record], regimes: Sequence[str]) -> dict[str, float]:
    """Return by regime, and for all, the share that each kind's commonest answer has right."""
    asked = {(r.regime, r.stream, r.question): r for r in records if r.kind != NOW}
    truths: dict[str, Counter[str]] = {}
    for record in asked.values():
        truths.setdefault(record.kind, Counter())[record.truth] += 1
    guesses = {kind: max(counter, key=counter.__getitem__) for kind, counter in truths.items()}
    found = {}
    for regime in (*regimes, ALL):
        there = [r for r in asked.values() if regime in (ALL, r.regime)]
        hits = sum(r.truth == guesses[r.kind] for r in there)
        found[regime] = hits / len(there) if there else 0.0
    return found
