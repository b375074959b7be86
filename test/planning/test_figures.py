"""Figures from config files: parameters as the library has them, tokens, cache bytes, sizes."""

from __future__ import annotations

import json

import pytest

from infinipot_ros.core import ConfigError, ModelError
from infinipot_ros.planning import find_model, format_bytes, parse_bytes
from infinipot_ros.planning.config_file import read_config
from infinipot_ros.planning.frames import PROMPTS, step_shape
from infinipot_ros.planning.parameters import count_parameters
from infinipot_ros.planning.source import published

QWEN25 = "Qwen/Qwen2.5-VL-3B-Instruct"


@pytest.mark.parametrize("name", published())
def test_parameters_are_those_of_the_library_class(name):
    import torch
    import transformers

    from infinipot_ros.models.families import FAMILIES

    known = published()[name]
    config = transformers.AutoConfig.for_model(**known["config"])
    with torch.device("meta"):
        network = getattr(transformers, FAMILIES[config.model_type].library)(config)
    figures = find_model(name).figures
    counted = count_parameters(figures)
    assert counted.total == sum(parameter.numel() for parameter in network.parameters())
    assert counted.total == pytest.approx(known["parameters"], rel=0.02)
    decoder = getattr(network.model, "language_model", None) or network.model.text_model
    layers = [m for m in decoder.modules() if isinstance(m, torch.nn.Linear)]
    assert counted.linear == sum(layer.weight.numel() for layer in layers)
    assert figures.text.tied == (network.lm_head.weight is decoder.embed_tokens.weight)


def test_every_family_that_loads_has_a_plan():
    from infinipot_ros.models.families import FAMILIES
    from infinipot_ros.planning import config_file

    assert list(FAMILIES) == list(config_file.FAMILIES) == list(PROMPTS)
    assert {entry["config"]["model_type"] for entry in published().values()} == set(FAMILIES)


@pytest.mark.parametrize("name", published())
def test_a_saved_config_reads_like_the_published_one(name, tmp_path):
    import transformers

    transformers.AutoConfig.for_model(**published()[name]["config"]).save_pretrained(tmp_path)
    assert find_model(str(tmp_path)).figures == find_model(name).figures


@pytest.mark.parametrize(
    "name, pixels, tokens",
    [
        (QWEN25, 0, 256),
        (QWEN25, 91728, 117),
        ("Qwen/Qwen3-VL-2B-Instruct", 98304, 96),
        ("llava-hf/llava-onevision-qwen2-7b-ov-hf", 0, 196),
        ("llava-hf/LLaVA-NeXT-Video-7B-hf", 0, 144),
        ("HuggingFaceTB/SmolVLM2-500M-Video-Instruct", 0, 64),
        ("HuggingFaceTB/SmolVLM2-2.2B-Instruct", 0, 81),
        ("OpenGVLab/InternVL3-1B-hf", 0, 256),
    ],
)
def test_tokens_of_a_step(name, pixels, tokens):
    model = find_model(name).figures
    step = step_shape(model, None, pixels=pixels)
    assert step.video_tokens == tokens
    assert step.tokens == tokens + PROMPTS[model.family].step


def test_a_step_follows_the_preprocessor():
    model = find_model(QWEN25).figures
    assert step_shape(model, {"max_pixels": 28 * 28 * 40}).tokens == 40
    assert step_shape(model, {"size": {"height": 56, "width": 84}}).tokens == 6
    assert step_shape(model, {"size": {"longest_edge": 28 * 28 * 9}}).tokens == 9


@pytest.mark.parametrize(
    "contents, tokens",
    [
        ({"preprocessor_config": {"max_pixels": 28 * 28 * 40}}, 40),
        ({"processor_config": {"image_processor": {"max_pixels": 28 * 28 * 30}}}, 30),
        (
            {
                "processor_config": {"image_processor": {"max_pixels": 28 * 28 * 30}},
                "preprocessor_config": {"max_pixels": 28 * 28 * 20},
                "video_preprocessor_config": {"max_pixels": 28 * 28 * 10},
            },
            20,
        ),
        ({}, 256),
    ],
)
def test_a_step_follows_whichever_files_a_folder_has(tmp_path, contents, tokens):
    (tmp_path / "config.json").write_text(json.dumps(published()[QWEN25]["config"]))
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    files = find_model(str(tmp_path))
    assert step_shape(files.figures, files.preprocessor).tokens == tokens


def test_a_processor_that_is_no_object_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(published()[QWEN25]["config"]))
    (tmp_path / "processor_config.json").write_text('{"image_processor": [1]}')
    with pytest.raises(ModelError, match=r"image_processor is \[1\]; it must be an object"):
        find_model(str(tmp_path))


def test_pixels_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="28x28 pixels, so at least 784"):
        step_shape(find_model(QWEN25).figures, None, pixels=500)
    with pytest.raises(ConfigError, match=r"pixels is 50000, .* 448x448; leave it out"):
        step_shape(find_model("OpenGVLab/InternVL3-1B-hf").figures, None, pixels=50_000)
    assert step_shape(find_model("OpenGVLab/InternVL3-1B-hf").figures, None, pixels=448**2)


def test_an_unknown_model_offline_is_told_what_would_do(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(ModelError) as error:
        find_model("someone/something")
    assert "folder that holds its config.json" in str(error.value)
    assert all(name in str(error.value) for name in ("roomworld", *published()))


@pytest.mark.parametrize(
    "config, message",
    [
        ({"model_type": "gemma3"}, "family 'gemma3'.*qwen2_5_vl"),
        ({"model_type": "qwen2_vl"}, "no vision_config"),
        (
            {"model_type": "qwen2_vl", "hidden_size": 0, "vision_config": {}},
            "'hidden_size' is missing or wrong",
        ),
        (
            {"model_type": "internvl", "vision_config": {}, "text_config": {"vocab_size": "many"}},
            "'vocab_size' is missing or wrong",
        ),
    ],
)
def test_a_config_that_cannot_be_planned_with_is_named(config, message):
    with pytest.raises(ModelError, match=message):
        read_config(config, name="x")


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_a_folder_without_a_readable_config_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        find_model(str(tmp_path))


def test_a_downloaded_model_is_found_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "models--someone--mine" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    config = {**published()[QWEN25]["config"], "torch_dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config))
    files = find_model("someone/mine")
    assert files.figures == find_model(QWEN25).figures
    assert files.dtype == "float16"


@pytest.mark.parametrize(
    "text, size",
    [
        ("8GiB", 8 * 2**30),
        ("8 GB", 8 * 10**9),
        ("8000MB", 8 * 10**9),
        ("7.5g", 7_500_000_000),
        ("512 MiB", 2**29),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "lots", "8 gigs", "-1GB", "0GB", "8iB", "GB", "1e3GB"])
def test_what_is_no_size_is_named(text):
    with pytest.raises(ConfigError, match="write 8GiB, 8GB or 8000MB") as error:
        parse_bytes(text)
    assert repr(text) in str(error.value)


def test_sizes_are_written_in_readable_units():
    sizes = (8 * 2**30, 159.4 * 2**20, 2048, 5)
    assert [format_bytes(size) for size in sizes] == ["8.00 GiB", "159.4 MiB", "2.0 KiB", "5 B"]
