"""The embedded model: complete, small, configured as it was trained, and still able to answer."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.roomworld import QUESTION_KINDS, REGIMES, RoomWorld
from infinipot_ros.roomworld.evaluate import Trial, evaluate, held_out_stream, total
from infinipot_ros.roomworld.training.architecture import build_tokenizer
from infinipot_ros.roomworld.vocabulary import COLORS

FOLDER = Path(str(files("infinipot_ros.models"))) / "roomworld"
LARGEST_BYTES = 15_000_000
S = 1_000_000_000


def read(name: str) -> dict:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def engine() -> StreamEngine:
    return StreamEngine.from_pretrained("roomworld", EngineConfig(policy="full", max_new_tokens=8))


def test_the_folder_is_complete_and_small() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert {
        "README.md", "config.json", "generation_config.json", "model.safetensors",
        "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json",
    } <= names  # fmt: skip
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < LARGEST_BYTES


def test_the_configuration_is_the_trained_one() -> None:
    config, preparation = read("config.json"), read("preprocessor_config.json")
    assert config["architectures"] == ["Qwen2_5_VLForConditionalGeneration"]
    assert config["dtype"] == "float16"
    assert config["tie_word_embeddings"]
    assert config["text_config"]["max_position_embeddings"] == 1280
    assert config["vision_config"]["tokens_per_second"] == 1
    assert preparation["size"] == {"height": 120, "width": 120}
    assert (preparation["patch_size"], preparation["merge_size"]) == (20, 2)
    assert preparation["image_mean"] == preparation["image_std"] == [0.5, 0.5, 0.5]
    end = build_tokenizer().convert_tokens_to_ids("<|im_end|>")
    assert read("generation_config.json")["eos_token_id"] == end


def test_the_tokenizer_is_the_one_of_the_code() -> None:
    from transformers import AutoTokenizer

    stored, built = AutoTokenizer.from_pretrained(FOLDER), build_tokenizer()
    assert stored.get_vocab() == built.get_vocab()
    assert stored.chat_template == built.chat_template
    text = "Did you see a cup? What colour was the hat?"
    assert stored(text).input_ids == built(text).input_ids


def test_held_out_streams_are_answered(engine) -> None:
    """Guard against a broken pipeline, with room for the luck of few streams."""
    everything = total(evaluate(engine, Trial(steps=32, streams=8, seed=71)))
    assert everything.asked > 100
    assert everything.right / everything.asked > 0.85, everything.mistakes


@pytest.mark.parametrize("regime", REGIMES)
def test_every_life_is_answered_about_far_above_chance(engine, regime: str) -> None:
    everything = total(evaluate(engine, Trial(steps=24, streams=4, seed=73, regime=regime)))
    assert everything.asked > 40
    assert everything.right / everything.asked > 0.65, everything.mistakes


def test_every_kind_is_answered_far_above_chance(engine) -> None:
    tallies = evaluate(engine, Trial(steps=24, streams=16, seed=72))
    for kind in QUESTION_KINDS:
        assert tallies[kind].asked >= 5, kind
        assert tallies[kind].right / tallies[kind].asked > 0.6, tallies[kind].mistakes


@pytest.mark.parametrize("chosen", [{"phrasings": "held_out"}, {"objects": "held_out"}])
def test_what_was_never_trained_is_answered_far_above_chance(engine, chosen) -> None:
    everything = total(evaluate(engine, Trial(steps=16, streams=8, seed=74, **chosen)))
    assert everything.asked > 60
    assert everything.right / everything.asked > 0.65, everything.mistakes


def test_answers_are_single_clean_words_and_end(engine) -> None:
    world, frames = held_out_stream(Trial(steps=16, streams=1, seed=73), 0)
    engine.reset()
    engine.observe([f.image for f in frames], [f.stamp_ns for f in frames])
    rng = np.random.default_rng(0)
    for kind in QUESTION_KINDS:
        question = world.ask(kind, frames[-1].stamp_ns, rng)
        if question is None:
            continue
        answer = engine.ask(question.text)
        assert answer.text.isalpha()
        assert answer.finish_reason == "stop"
        assert answer.n_tokens == 1
        assert 0.0 < answer.confidence <= 1.0


def test_phrasing_as_typed_gives_the_same_answer(engine) -> None:
    world, frames = held_out_stream(Trial(steps=20, streams=1, seed=75), 0)
    engine.reset()
    engine.observe([f.image for f in frames], [f.stamp_ns for f in frames])
    kind = world.sightings(frames[-1].stamp_ns)[0].kind
    typed = engine.ask(f"What colour was the {kind}?").text
    assert typed == engine.ask(f"what color was the {kind} ?").text
    assert typed in COLORS


def test_an_odd_last_frame_is_seen(engine) -> None:
    """A question flushes a half-filled step: its only frame is repeated."""
    right = 0
    for seed in range(8):
        world = RoomWorld(seed, tour_s=30, n_objects=4)
        first = world.sightings(30 * S)[0]
        # Two seconds after it came into view, with an odd number of frames.
        n_frames = 2 * (first.time_ms // 1000 + 2) + 1
        times = [i * S // 2 for i in range(n_frames)]
        engine.reset()
        engine.observe([world.image(t) for t in times], times)
        right += engine.ask(f"did you see a {first.kind} ?").text == "yes"
    assert right >= 7
