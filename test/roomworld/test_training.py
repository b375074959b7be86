"""The training as a whole: exact resumption, no accidents with checkpoints, a loadable result."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from infinipot_ros.roomworld.scenes import IMAGE_SIZE
from infinipot_ros.roomworld.train import main
from infinipot_ros.roomworld.training.architecture import build_model, build_tokenizer
from infinipot_ros.roomworld.training.config import TrainConfig, smoke_config
from infinipot_ros.roomworld.training.language import LanguageStage
from infinipot_ros.roomworld.training.trainer import Trainer


def test_a_resumed_training_ends_as_an_uninterrupted_one(smoke_training, tmp_path) -> None:
    """Started three times anew from its checkpoint, against one that another process ran."""
    options = ["--out", str(tmp_path / "interrupted"), "--smoke", "--seed", "1"]
    for number, steps in enumerate((3, 2, 3, None)):
        resume = ["--resume"] if number else []
        stop = [] if steps is None else ["--stop-after", str(steps)]
        assert main([*options, *resume, *stop]) == (0 if steps is None else 1)
    whole, parts = (
        torch.load(folder / "checkpoint.pt", weights_only=True)
        for folder in (smoke_training, tmp_path / "interrupted")
    )
    assert whole["language"]["step"] == parts["language"]["step"] > 0
    for name, tensor in whole["model"].items():
        assert torch.equal(tensor, parts["model"][name]), name
    assert str(whole["language"]["optimizer"]) == str(parts["language"]["optimizer"])


def test_a_checkpoint_is_neither_overwritten_nor_misused(smoke_training, capsys) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(["--out", str(smoke_training), "--smoke"])
    assert refusal.value.code == 2
    assert "pass --resume to continue it" in capsys.readouterr().err
    with pytest.raises(ValueError, match="another configuration"):
        Trainer(smoke_config(seed=99), smoke_training)


def test_the_exported_folder_loads_and_answers(smoke_training) -> None:
    from infinipot_ros.core import EngineConfig, StreamEngine

    engine = StreamEngine.from_pretrained(
        str(smoke_training / "model"), EngineConfig(policy="full", max_new_tokens=2)
    )
    engine.observe(np.zeros((4, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8), [0, 1, 2, 3])
    assert engine.stats().tokens_retained == 2 * 9
    assert engine.ask("did you see a cup ?").n_tokens >= 1


def test_the_exported_folder_prepares_images_as_the_training_did(smoke_training) -> None:
    written = (smoke_training / "model" / "preprocessor_config.json").read_text(encoding="utf-8")
    preparation = json.loads(written)
    assert preparation["size"] == {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    assert IMAGE_SIZE % (preparation["patch_size"] * preparation["merge_size"]) == 0


def test_the_log_tells_every_stage(smoke_training) -> None:
    lines = (smoke_training / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events[0] == "start"
    assert events[-1] == "finished"
    assert {"vision", "pool", "language", "validation"} <= set(events)


def test_positions_in_use_are_within_what_is_trained() -> None:
    config = TrainConfig()
    assert config.shape.max_positions == 1280
    assert config.language.max_position_span < config.shape.max_positions
    assert max(config.language.lengths) < config.language.max_position_span


def test_no_stream_has_more_tokens_than_planned() -> None:
    """Long streams are thinned to the bound, short ones only as often as the plan says."""
    config = TrainConfig()
    tokenizer = build_tokenizer()
    model = build_model(config.shape, tokenizer, 0)
    stage = LanguageStage(model, tokenizer.get_vocab(), config)
    stage._length_index = len(config.language.lengths) - 1
    plans = [stage._batch_plan(step) for step in range(400)]
    longest = max(plan.n_steps for plan in plans)
    assert longest == config.language.lengths[-1]
    assert max(plan.n_tokens for plan in plans) <= config.language.most_tokens
    assert any(plan.thinned == 1.0 for plan in plans if plan.n_steps > 64)


def test_a_later_cycle_is_shorter_and_starts_at_half_the_rate() -> None:
    config = TrainConfig()
    tokenizer = build_tokenizer()
    stage = LanguageStage(build_model(config.shape, tokenizer, 0), tokenizer.get_vocab(), config)
    plan = config.language
    stage.step, stage._decay_from, stage._since = 5000, 5000, 0
    first = stage._rate()
    stage._cycle = 1
    assert stage._rate() == first / 2 == plan.learning_rate / 2
    stage._since = plan.later_decay_steps
    assert math.isclose(stage._rate(), plan.min_decay * plan.learning_rate / 2)
