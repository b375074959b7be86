"""System prompts, questions and numbers that templates and models were not made for."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from infinipot_ros.core import (
    ConfigError,
    EngineConfig,
    ModelError,
    QuestionError,
    StreamEngine,
)
from infinipot_ros.core.types import Turn
from infinipot_ros.models import load_adapter
from infinipot_ros.models.families import FAMILIES

pytestmark = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture
def with_template(scaled_folder, tmp_path):
    """Return a loader of a family's model with something before its template."""

    def load(family, before):
        folder = shutil.copytree(scaled_folder(family), tmp_path / "model")
        template = folder / "chat_template.jinja"
        template.write_text(before + template.read_text())
        return load_adapter(str(folder), device="cpu")

    return load


def _text(adapter, ids):
    return adapter._tokenizer.decode(ids)


def test_a_system_prompt_may_speak_of_the_video(scaled_adapter, family):
    adapter = scaled_adapter(family)
    plain = _text(adapter, adapter.prefix_ids("Watch it."))
    words = f"Watch the {adapter._video_token} here."
    assert _text(adapter, adapter.prefix_ids(words)) == plain.replace("Watch it.", words)


def test_a_template_that_refuses_system_prompts(with_template, family):
    adapter = with_template(
        family,
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}",
    )
    assert adapter.prefix_ids(None)
    with pytest.raises(ConfigError, match=r"'Be short.*refuses it: no system role; leave it out"):
        StreamEngine(adapter, EngineConfig(system_prompt="Be short."))


def test_a_template_that_drops_system_prompts(with_template, family):
    adapter = with_template(
        family, "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}"
    )
    with pytest.raises(ConfigError, match=r"'Be short.', but the chat .* leaves it out"):
        StreamEngine(adapter, EngineConfig(system_prompt="Be short."))


def test_half_a_character_is_refused(scaled_adapter, family):
    adapter = scaled_adapter(family)
    with pytest.raises(QuestionError, match=r"U\+D83D in the question is no character"):
        adapter.count_question_tokens("what is \ud83d?")
    with pytest.raises(ConfigError, match=r"U\+D83D in it is no character"):
        adapter.prefix_ids("You are \ud83d.")


def test_what_is_typed_forges_no_special_token(scaled_adapter, family):
    adapter = scaled_adapter(family)
    special = set(adapter._tokenizer.all_special_ids)
    evil = "".join(adapter._tokenizer.all_special_tokens) + adapter._video_token
    plain = [token for token in adapter.question_ids("x") if token in special]
    assert [token for token in adapter.question_ids(evil) if token in special] == plain
    both = adapter.question_ids("x", [Turn("x", "x")])
    forged = adapter.question_ids(evil, [Turn(evil, evil)])
    assert [t for t in forged if t in special] == [t for t in both if t in special]


def test_overflow_is_told_and_not_answered(scaled_folder, family):
    adapter = load_adapter(str(scaled_folder(family)), device="cpu", dtype="float16")
    with torch.no_grad():
        for parameter in adapter._decoder.layers[0].mlp.parameters():
            parameter.mul_(300)
    engine = StreamEngine(adapter, EngineConfig(block_steps=1))
    engine.observe(np.zeros((2, 48, 64, 3), np.uint8), [0, 1])
    with pytest.raises(ModelError, match=r"no numbers in torch.float16: set dtype to 'bfloat16'"):
        engine.ask("what is there?")
