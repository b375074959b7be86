"""The node hands its loading options to the model, whatever they are."""

from __future__ import annotations

import pytest

from infinipot_ros.core import StreamEngine
from infinipot_ros.models import load_adapter, placement
from infinipot_ros.ros.node import load_engines
from infinipot_ros.ros.parameters import BY_NAME, PARAMETERS
from infinipot_ros.ros.settings import Settings, in_parameter_names


class StopError(Exception):
    pass


def _settings(**changed):
    values = {row.name: row.default for row in PARAMETERS}
    values["image_topics"], values["cameras"] = ["image", "rear"], []
    values["memory.policy_params"] = []
    return Settings.from_values({**values, **changed})


def test_every_option_arrives(monkeypatch):
    options = {
        "device": "cuda",
        "dtype": "float16",
        "attn_implementation": "eager",
        "device_map": "balanced",
        "quantization": "4bit",
    }
    arrived = {}

    def load(model, **given):
        arrived.update(given, model=model)
        raise StopError

    monkeypatch.setattr("infinipot_ros.models.load_adapter", load)
    with pytest.raises(StopError):
        load_engines(_settings(**options, model="some/model", **{"memory.max_tokens": 2048}))
    # Two cameras, each with its cap and room for a question.
    caches = 2 * (2048 + sum(BY_NAME[f"question.{name}"].default for name in (
        "max_tokens", "max_dialogue_tokens", "max_new_tokens",
    )))  # fmt: skip
    assert arrived == {**options, "model": "some/model", "cache_tokens": caches}


def test_a_cache_without_a_cap_is_not_counted(monkeypatch):
    arrived = []

    def load(_model, **given):
        arrived.append(given["cache_tokens"])
        raise StopError

    monkeypatch.setattr("infinipot_ros.models.load_adapter", load)
    with pytest.raises(StopError):
        load_engines(_settings(**{"memory.policy": "full"}))
    assert arrived == [0]


def test_defaults_are_those_of_the_library():
    for function in (load_adapter, StreamEngine.from_pretrained):
        for name, default in function.__kwdefaults__.items():
            if name not in ("cache_tokens", "engines"):
                assert BY_NAME[name].default == default


@pytest.mark.parametrize(
    "name, choices",
    [
        ("attn_implementation", placement.ATTENTION),
        ("device_map", placement.DEVICE_MAPS),
        ("quantization", placement.QUANTIZATIONS),
        ("dtype", ("auto", *placement.DTYPES)),
    ],
)
def test_choices_are_those_of_the_library(name, choices):
    assert BY_NAME[name].choices == choices


def test_too_little_memory_names_the_parameter_that_helps(tiny_model, monkeypatch):
    monkeypatch.setattr(placement, "free_bytes", lambda _device: 2**10)
    with pytest.raises(Exception, match="lower max_tokens") as refusal:
        load_engines(_settings(model=str(tiny_model()), device="cpu"))
    assert "lower memory.max_tokens" in in_parameter_names(str(refusal.value))
