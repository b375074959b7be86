"""The evaluation counts right: intervals, an oracle, a know-nothing, held-out worlds."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, RoomWorld
from infinipot_ros.roomworld import evaluate as evaluation
from infinipot_ros.roomworld.evaluate import evaluate, held_out_stream, total, wilson

S = 1_000_000_000


class Oracle:
    """Stands where the engine stands and answers from a table filled by asking the worlds."""

    def __init__(self, monkeypatch, answer) -> None:
        self.observed: list[tuple[int, int]] = []
        self._answer = answer
        self._asked: dict[str, str] = {}
        genuine = RoomWorld.ask

        def overheard(world, kind, time_ns, rng):
            question = genuine(world, kind, time_ns, rng)
            if question is not None:
                self._asked[question.text] = question.answer
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
    tallies = evaluate(oracle, steps=16, streams=6)
    assert oracle.observed == [(32, 31 * S // 2)] * 6
    assert set(tallies) == set(QUESTION_KINDS)
    assert total(tallies).right == total(tallies).asked > 60
    assert not total(tallies).mistakes


def test_nearly_right_is_wrong(monkeypatch) -> None:
    tallies = evaluate(Oracle(monkeypatch, answer=lambda truth: truth + "."), steps=8, streams=2)
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
    streams = [held_out_stream(seed, number, 4) for seed in (0, 1) for number in (0, 1)]
    assert len({world.seed for world, _ in streams}) == 4
    images = [frames[-1].image for _, frames in streams]
    assert all(len(frames) == 8 for _, frames in streams)
    assert not any(np.array_equal(images[0], other) for other in images[1:])


def test_a_short_tour_leaves_its_objects_in_the_past() -> None:
    for number in range(5):
        world, frames = held_out_stream(0, number, 64, tour_share=0.25)
        end = frames[-1].stamp_ns
        # The last room of the tour may outlast it by one visit.
        assert world.sightings(end) == world.sightings(22 * S)
        assert world.visible(end) == ()


def test_the_report_names_settings_and_figures(monkeypatch, tmp_path, capsys) -> None:
    oracle = Oracle(monkeypatch, answer=lambda truth: truth)
    engine = SimpleNamespace(from_pretrained=lambda _model, _config: oracle)
    monkeypatch.setattr(evaluation, "StreamEngine", engine)
    out = tmp_path / "figures.json"
    options = ["--steps", "8", "--streams", "2", "--out", str(out)]
    assert evaluation.main(options) == 0
    printed = capsys.readouterr().out
    assert "all       1.000  (n=" in printed
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["settings"]["steps"] == 8
    assert report["results"]["all"]["share"] == 1.0


@pytest.mark.parametrize(
    "options,said",
    [
        (["--steps", "0"], "--steps, --streams and --per-kind take at least 1"),
        (["--policy", "tar"], "policy tar needs --max-tokens"),
        (["--policy", "tar", "--max-tokens", "20"], "smaller than two blocks"),
        (["--model", "./nowhere"], "./nowhere"),
    ],
)
def test_useless_options_are_refused(options: list[str], said: str, capsys) -> None:
    with pytest.raises(SystemExit) as refusal:
        evaluation.main(options)
    assert refusal.value.code == 2
    assert said in capsys.readouterr().err
