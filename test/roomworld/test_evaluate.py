"""The evaluation counts right: intervals, an oracle, a know-nothing, held-out worlds."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, REGIMES, RoomWorld
from infinipot_ros.roomworld import evaluate as evaluation
from infinipot_ros.roomworld.evaluate import (
    Trial,
    evaluate,
    held_out_stream,
    questions_at_end,
    total,
    wilson,
)
from infinipot_ros.roomworld.phrasings import ALL, HELD_OUT, TRAINED
from infinipot_ros.roomworld.vocabulary import held_out

S = 1_000_000_000


class Oracle:
    """Stands where the engine stands and answers from a table filled by asking the worlds."""

    def __init__(self, monkeypatch, answer) -> None:
        self.observed: list[tuple[int, int]] = []
        self.phrasings: set[int] = set()
        self._answer = answer
        self._asked: dict[str, str] = {}
        genuine = RoomWorld.ask

        def overheard(world, kind, time_ns, rng, phrasings=ALL):
            question = genuine(world, kind, time_ns, rng, phrasings)
            if question is not None:
                self._asked[question.text] = question.answer
                self.phrasings.add(question.phrasing)
            return question

        monkeypatch.setattr(RoomWorld, "ask", overheard)

    def reset(self) -> None:
        self._asked.clear()

    def observe(self, frames, stamps) -> None:
        assert stamps == sorted(stamps)
        self.observed.append((len(frames), stamps[-1]))

    def ask(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(text=self._answer(self._asked[text]))


def test_who_knows_everything_scores_one(monkeypatch) -> None:
    oracle = Oracle(monkeypatch, answer=lambda truth: truth)
    tallies = evaluate(oracle, Trial(steps=16, streams=6))
    assert oracle.observed == [(32, 31 * S // 2)] * 6
    assert set(tallies) == set(QUESTION_KINDS)
    assert total(tallies).right == total(tallies).asked > 60
    assert not total(tallies).mistakes


def test_nearly_right_is_wrong(monkeypatch) -> None:
    oracle = Oracle(monkeypatch, answer=lambda truth: truth + ".")
    tallies = evaluate(oracle, Trial(steps=8, streams=2))
    assert total(tallies).right == 0
    assert len(total(tallies).mistakes) == total(tallies).asked


@pytest.mark.parametrize(
    "right, asked, low, high",
    # From the closed form, computed with 40 digits.
    [
        (81, 263, 0.2553, 0.3662),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
    ],
)
def test_wilson_intervals(right: int, asked: int, low: float, high: float) -> None:
    interval = wilson(right, asked)
    assert interval.share == right / asked
    assert interval.low == pytest.approx(low, abs=1e-4)
    assert interval.high == pytest.approx(high, abs=1e-4)


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="asked is 0"):
        wilson(0, 0)


def test_held_out_streams_differ_by_number_and_seed() -> None:
    streams = [
        held_out_stream(Trial(steps=4, streams=2, seed=seed), number)
        for seed in (0, 1)
        for number in (0, 1)
    ]
    assert len({world.seed for world, _ in streams}) == 4
    images = [frames[-1].image for _, frames in streams]
    assert all(len(frames) == 8 for _, frames in streams)
    assert not any(np.array_equal(images[0], other) for other in images[1:])


def test_a_short_tour_leaves_its_objects_in_the_past() -> None:
    for number in range(5):
        world, frames = held_out_stream(Trial(steps=64, streams=5, tour_share=0.25), number)
        end = frames[-1].stamp_ns
        assert world.sightings(end) == world.sightings(16 * S)
        assert world.visible(end) == ()


@pytest.mark.parametrize("regime", REGIMES)
def test_a_trial_names_the_life_that_is_led(regime: str) -> None:
    trial = Trial(steps=30, streams=1, regime=regime)
    world, frames = held_out_stream(trial, 3)
    same = RoomWorld(world.seed, tour_s=30, regime=regime)
    assert np.array_equal(frames[20].image, same.image(frames[20].stamp_ns))


@pytest.mark.parametrize(
    "objects, shares", [("all", (0.02, 0.3)), ("trained", (0, 0)), ("held_out", (1, 1))]
)
def test_a_trial_names_the_objects_that_are_met(objects: str, shares) -> None:
    trial = Trial(steps=40, streams=30, objects=objects)
    worlds = [
        held_out_stream(Trial(steps=1, streams=1, tour_share=40, objects=objects), number)[0]
        for number in range(trial.streams)
    ]
    seen = [s for world in worlds for s in world.sightings(40 * S)]
    share = np.mean([held_out(s.kind, s.color, s.room) for s in seen])
    assert shares[0] <= share <= shares[1]


@pytest.mark.parametrize(
    "phrasings, numbers", [("all", ALL), ("trained", TRAINED), ("held_out", HELD_OUT)]
)
def test_a_trial_names_the_wording(phrasings: str, numbers, monkeypatch) -> None:
    oracle = Oracle(monkeypatch, answer=lambda truth: truth)
    evaluate(oracle, Trial(steps=20, streams=4, phrasings=phrasings))
    assert oracle.phrasings == set(numbers)


def test_questions_of_a_kind_are_different_and_no_more_than_wanted() -> None:
    world = RoomWorld(3, tour_s=40)
    asked = list(questions_at_end(world, 41 * S, np.random.default_rng(0), per_kind=3))
    assert len({(q.text, q.answer) for q in asked}) == len(asked)
    counts = [sum(q.kind == kind for q in asked) for kind in QUESTION_KINDS]
    assert max(counts) == 3
    assert [q.kind for q in asked] == sorted((q.kind for q in asked), key=QUESTION_KINDS.index)


def test_a_trial_asks_the_same_whoever_answers(monkeypatch) -> None:
    trial = Trial(steps=12, streams=3, regime="patrol")
    said = []
    for answer in (lambda truth: truth, lambda truth: "no"):
        asked: list[str] = []
        oracle = Oracle(monkeypatch, answer)
        genuine = oracle.ask
        oracle.ask = lambda text, genuine=genuine, asked=asked: (asked.append(text), genuine(text))[
            1
        ]
        evaluate(oracle, trial)
        said.append(asked)
        monkeypatch.undo()
    assert said[0] == said[1]


def test_the_report_names_settings_and_figures(monkeypatch, tmp_path, capsys) -> None:
    oracle = Oracle(monkeypatch, answer=lambda truth: truth)
    engine = SimpleNamespace(from_pretrained=lambda _model, _config: oracle)
    monkeypatch.setattr(evaluation, "StreamEngine", engine)
    out = tmp_path / "figures.json"
    options = ["--steps", "8", "--streams", "2", "--out", str(out), "--regime", "cuts"]
    options += ["--phrasings", "held_out", "--objects", "trained"]
    assert evaluation.main(options) == 0
    printed = capsys.readouterr().out
    assert "all           1.000  (n=" in printed
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["settings"]["steps"] == 8
    chosen = [report["settings"][name] for name in ("regime", "phrasings", "objects")]
    assert chosen == ["cuts", "held_out", "trained"]
    assert oracle.phrasings == set(HELD_OUT)
    assert report["results"]["all"]["share"] == 1.0


@pytest.mark.parametrize(
    "options,said",
    [
        (["--steps", "0"], "--steps, --streams and --per-kind take at least 1"),
        (["--policy", "tar"], "policy tar needs --max-tokens"),
        (["--policy", "tar", "--max-tokens", "20"], "smaller than two blocks"),
        (["--model", "./nowhere"], "./nowhere"),
        (["--regime", "flight"], "invalid choice: 'flight'"),
        (["--phrasings", "rude"], "invalid choice: 'rude'"),
        (["--objects", "none"], "invalid choice: 'none'"),
        (["--seed", "-1"], "--seed and --mistakes take at least 0"),
        (["--mistakes", "-1"], "--seed and --mistakes take at least 0"),
        (["--tour-share", "0"], "--tour-share is 0.0; choose a share above 0"),
        (["--tour-share", "nan"], "--tour-share is nan"),
        (["--tour-share", "1e-9"], "--tour-share is 1e-09"),
        (["--out", "/nowhere/figures.json"], "--out /nowhere/figures.json cannot be written"),
        (["--out", "/"], "--out / cannot be written"),
    ],
)
def test_useless_options_are_refused(options: list[str], said: str, capsys) -> None:
    with pytest.raises(SystemExit) as refusal:
        evaluation.main(options)
    assert refusal.value.code == 2
    assert said in capsys.readouterr().err
