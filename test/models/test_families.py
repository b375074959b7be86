"""The registry of families: every entry works, every refusal is true of the library's model."""

from __future__ import annotations

import inspect
from importlib import import_module

import numpy as np
import pytest
import transformers

from infinipot_ros.core import EngineConfig, ModelError, StreamEngine
from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.models import families
from infinipot_ros.models.families import FAMILIES, REFUSED, find_family, refuse_forgetting_layers


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_names_an_adapter_and_a_class_of_the_library(name):
    family = find_family("m", name)
    adapter = getattr(import_module(f"infinipot_ros.models.{family.module}"), family.adapter)
    assert issubclass(adapter, ModelAdapter)
    assert getattr(transformers, family.library).config_class.model_type == name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_of_each_family_loads_by_its_config_alone(scaled_folder, name, dtype):
    engine = StreamEngine.from_pretrained(
        str(scaled_folder(name)),
        EngineConfig(policy="full", block_steps=1, max_new_tokens=2),
        device="cpu",
        dtype=dtype,
    )
    family = FAMILIES[name]
    assert type(engine.adapter).__name__ == family.adapter
    frame = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    engine.observe([frame] * 2, [0, 5 * 10**8])
    assert engine.ask("what is there?").n_tokens > 0
    assert str(engine.cache.keys.dtype) == f"torch.{dtype}"
    assert engine.cache.keys.isfinite().all()


def _text(name):
    config = transformers.AutoConfig.for_model(name)
    return config, config.get_text_config(decoder=True)


LAYERS = {
    families.SLIDING: "sliding_attention",
    families.LINEAR: "linear_attention",
    families.CHUNKED: "chunked_attention",
    families.INDEXED: "indexed_attention",
}


def _shown(name):
    """Return whether the installed library's model is as its refusal says."""
    reason = REFUSED[name]
    config, text = _text(name)
    kinds = getattr(text, "layer_types", None) or []
    found = next((kind for start, kind in LAYERS.items() if reason.startswith(start)), None)
    if found:
        others = [kind for kind in kinds if kind != "full_attention"]
        if reason.startswith(families.LINEAR):  # mamba layers have names of their own
            return found in others
        return found in others and ("most" not in reason or len(others) > len(kinds) / 2)
    if name == "lfm2_vl":  # which layers convolve, the published configs say
        text = transformers.Lfm2Config(num_hidden_layers=4, full_attn_idxs=[2])
        return "conv" in text.layer_types
    if reason == families.CONVOLUTION:
        return "conv" in kinds
    if reason == families.CROSS:
        return bool(getattr(text, "cross_attention_layers", None) or config.cross_layer_interval)
    source = inspect.getsource(import_module(f"transformers.models.{name}.modeling_{name}"))
    if reason == families.BOTH_WAYS:
        return "block_sequence_ids" in source or "token_type_ids_mask_function" in source
    return reason == families.ABSOLUTE and "nn.Embedding(config.max_position_embeddings" in source


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refusal_is_true_of_the_installed_library(name):
    try:
        _text(name)
    except ValueError:
        pytest.skip(f"transformers {transformers.__version__} does not know {name}")
    assert _shown(name)


@pytest.mark.parametrize("name", sorted({**REFUSED, **families.OTHER_FORMATS}))
def test_a_refusal_names_the_model_the_family_and_the_reason(name):
    with pytest.raises(ModelError) as refusal:
        find_family("some/model", name)
    message = str(refusal.value)
    assert "'some/model'" in message
    assert repr(name) in message
    assert {**REFUSED, **families.OTHER_FORMATS}[name] in message


def test_no_family_is_both_known_and_refused():
    names = [*FAMILIES, *REFUSED, *families.OTHER_FORMATS]
    assert len(names) == len(set(names))


def test_a_family_nobody_knows_is_refused_with_those_that_are():
    with pytest.raises(ModelError, match="'video_llama_3', which is not supported yet") as refusal:
        find_family("m", "video_llama_3")
    assert all(name in str(refusal.value) for name in FAMILIES)


def _nested(**text):
    """Return a family's config around a language model that forgets."""
    return transformers.LlavaNextVideoConfig(text_config=text)


@pytest.mark.parametrize(
    "config, words",
    [
        (
            lambda: _nested(model_type="mistral", num_hidden_layers=3, sliding_window=64),
            "3 of sliding_attention, among 3",
        ),
        (
            lambda: _nested(
                model_type="qwen2",
                num_hidden_layers=4,
                max_window_layers=3,
                use_sliding_window=True,
            ),
            "1 of sliding_attention, among 4",
        ),
    ],
    ids=["mistral", "qwen2"],
)
def test_a_language_model_that_forgets_is_refused_inside_any_family(config, words):
    with pytest.raises(ModelError, match=words):
        refuse_forgetting_layers("m", config())


@pytest.mark.parametrize(
    "text",
    [
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "qwen2", "use_sliding_window": False},
        {"model_type": "llama"},
    ],
    ids=lambda text: text["model_type"],
)
def test_a_language_model_that_does_not_is_taken(text):
    refuse_forgetting_layers("m", _nested(**text))
