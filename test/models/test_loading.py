"""Models that cannot be loaded: one clear refusal, whatever is wrong with the folder."""

from __future__ import annotations

import json
import shutil

import pytest

from infinipot_ros.core import ConfigError, EngineConfig, ModelError, StreamEngine
from infinipot_ros.models import load_adapter


@pytest.fixture
def folder(tiny_model, tmp_path):
    """Return a copy of a working model's folder, to be broken."""
    return shutil.copytree(tiny_model(), tmp_path / "model")


def _truncate(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def _widen(folder):
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["hidden_size"] *= 2
    (folder / "config.json").write_text(json.dumps(config))


def _other_family(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))


@pytest.mark.parametrize(
    "harm, words",
    [
        (_truncate, "could not be loaded"),
        (_widen, "could not be loaded"),
        (_other_family, "is of family 'bert'; supported: qwen2_5_vl"),
        (lambda f: (f / "config.json").unlink(), "holds no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "could not be loaded"),
        (lambda f: (f / "model.safetensors").unlink(), "could not be loaded"),
        (lambda f: (f / "preprocessor_config.json").unlink(), "could not be loaded"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "could not be loaded"),
    ],
    ids=[
        "truncated",
        "widened",
        "family",
        "no config",
        "config",
        "no weights",
        "no frames",
        "words",
    ],
)
def test_a_broken_folder_is_refused_by_name(folder, harm, words):
    harm(folder)
    with pytest.raises(ModelError, match=words) as refusal:
        load_adapter(str(folder), device="cpu")
    assert str(folder) in str(refusal.value)


@pytest.mark.parametrize(
    "name, words",
    [("", "model is empty"), ("nosuch", "neither 'roomworld'"), ("/no/such", "/no/such")],
)
def test_a_name_that_is_no_model_is_refused(name, words):
    with pytest.raises(ModelError, match=words):
        load_adapter(name)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"device": "mps"}, "device is 'mps'"),
        ({"device": "meta"}, "device is 'meta'"),
        ({"device": "gpu"}, "device is 'gpu'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"attn_implementation": "magic"}, "attn_implementation is 'magic'"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(tiny_model, settings, words):
    with pytest.raises(ConfigError, match=words):
        load_adapter(str(tiny_model()), **settings)


def test_a_cap_beyond_the_machine_is_refused_with_its_size(tiny_model):
    adapter = load_adapter(str(tiny_model()), device="cpu")
    with pytest.raises(ConfigError, match=r"max_tokens is 1\d+: \d+ MiB .* lower max_tokens"):
        StreamEngine(adapter, EngineConfig(max_tokens=10**12, policy="sliding_window"))
