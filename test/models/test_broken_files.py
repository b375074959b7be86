"""Files that do not fit together, for every family: refused when loading, never while streaming."""

from __future__ import annotations

import json
import shutil

import pytest

from infinipot_ros.core import ConfigError, EngineConfig, InfinipotError, ModelError, StreamEngine
from infinipot_ros.models import load_adapter
from infinipot_ros.models.families import FAMILIES

SQUARE = ("llava_onevision", "llava_next_video", "internvl")


@pytest.fixture
def load(scaled_folder, tmp_path):
    """Return a loader of a family's model after a change: `load(family, file, *path, value)`."""

    def change(family, file, *path, value):
        folder = shutil.copytree(scaled_folder(family), tmp_path / "model")
        content = json.loads((folder / file).read_text())
        inner = content
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
        (folder / file).write_text(json.dumps(content))
        return load_adapter(str(folder), device="cpu")

    return change


@pytest.mark.parametrize("family", ["qwen3_vl", "llava_onevision", "smolvlm"])
@pytest.mark.parametrize(
    "key, value",
    [
        ("image_mean", None),
        ("image_mean", 0.5),
        ("image_mean", [0.5] * 4),
        ("image_mean", ["half"] * 3),
        ("image_mean", [float("nan")] * 3),
        ("image_std", [0, 0, 0]),
    ],
)
def test_normalisation_that_gives_no_numbers(load, family, key, value):
    with pytest.raises(ModelError, match="could not be loaded"):
        load(family, "preprocessor_config.json", key, value=value)


@pytest.mark.parametrize("family", ["llava_next_video", "smolvlm"])
@pytest.mark.parametrize("value", [99, "bicubic"])
def test_an_interpolation_that_there_is_not(load, family, value):
    with pytest.raises(ModelError, match="could not be loaded"):
        load(family, "preprocessor_config.json", "resample", value=value)


@pytest.mark.parametrize(
    "family, path, value",
    [
        ("qwen3_vl", ["size"], 5),
        ("qwen3_vl", ["size"], [56, 56]),
        ("qwen3_vl", ["size"], {"height": 64}),
        ("qwen3_vl", ["size"], {"height": 64, "width": 65}),
        ("qwen3_vl", ["size", "longest_edge"], float("inf")),
        ("qwen2_5_vl", ["max_pixels"], "many"),
        ("qwen2_5_vl", ["max_pixels"], -4),
        ("llava_next_video", ["size"], {"shortest_edge": -5}),
        ("smolvlm", ["video_sampling", "video_size", "longest_edge"], 0),
        ("smolvlm", ["video_sampling", "video_size", "longest_edge"], -5),
    ],
)
def test_sizes_that_are_none(load, family, path, value):
    with pytest.raises(InfinipotError):
        load(family, "preprocessor_config.json", *path, value=value)


@pytest.mark.parametrize("family", SQUARE)
def test_a_layer_of_the_encoder_that_there_is_not(load, family):
    with pytest.raises(ModelError, match="could not be loaded"):
        load(family, "config.json", "vision_feature_layer", value=99)


@pytest.mark.parametrize("family", FAMILIES)
def test_frequencies_that_change_with_the_length(load, scaled_adapter, family):
    half = scaled_adapter(family).shape.head_dim // 2
    with pytest.raises(ModelError, match="rope_type 'longrope'; its keys cannot be moved"):
        load(
            family,
            "config.json",
            "text_config",
            "rope_parameters",
            value={
                **_rope(scaled_adapter(family)),
                "rope_type": "longrope",
                "short_factor": [1.0] * half,
                "long_factor": [2.0] * half,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_frequencies_that_change_at_the_limit_fix_it(load, scaled_adapter, family):
    """Dynamic RoPE: beyond the limit the library would turn every key otherwise."""
    rope = {**_rope(scaled_adapter(family)), "rope_type": "dynamic", "factor": 2.0}
    adapter = load(family, "config.json", "text_config", "rope_parameters", value=rope)
    limit = adapter.position_limit
    assert adapter.limit_is_fixed
    for changes in ({}, {"position_limit": limit}, {"position_limit": limit - 1}):
        StreamEngine(adapter, EngineConfig(policy="full", block_steps=1, **changes))
    for changes in ({"positions": "absolute"}, {"position_limit": limit + 1}):
        with pytest.raises(ConfigError, match=f"from position {limit} on \\(dynamic RoPE\\)"):
            StreamEngine(adapter, EngineConfig(policy="full", block_steps=1, **changes))


@pytest.mark.parametrize("family", FAMILIES)
def test_other_frequencies_leave_the_limit_free(scaled_adapter, family):
    adapter = scaled_adapter(family)
    if _rope(adapter)["rope_type"] == "dynamic":  # as InternVL3 is published
        assert adapter.limit_is_fixed
        return
    limit = adapter.position_limit + 1
    for changes in ({"positions": "absolute"}, {"position_limit": limit}):
        StreamEngine(adapter, EngineConfig(policy="full", block_steps=1, **changes))


def test_a_rotation_of_half_the_channels(load, scaled_adapter):
    rope = {**_rope(scaled_adapter("internvl")), "partial_rotary_factor": 0.5}
    with pytest.raises(ModelError, match="rotates 4 of 8 channels"):
        load("internvl", "config.json", "text_config", "rope_parameters", value=rope)


def _rope(adapter):
    return adapter._decoder.config.rope_parameters


@pytest.mark.parametrize("named", [5, "Other", ["Other"], {"Other": 1}])
def test_architectures_of_another_kind(load, named):
    with pytest.raises(ModelError, match=r"is a [^,]+; of its family 'smolvlm' a SmolVLMFor"):
        load("smolvlm", "config.json", "architectures", value=named)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokenizers_without_the_tokens_of_the_family(scaled_folder, tmp_path, family):
    folder = shutil.copytree(scaled_folder(family), tmp_path / "model")
    for name, keys in (
        ("tokenizer.json", ["added_tokens"]),
        ("tokenizer_config.json", ["additional_special_tokens", "extra_special_tokens"]),
    ):
        content = json.loads((folder / name).read_text())
        content.update({key: [] for key in keys if key in content})
        (folder / name).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"the tokenizer of .* has no token"):
        load_adapter(str(folder), device="cpu")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tokenizer_with_more_tokens_than_embeddings(scaled_adapter, family):
    adapter = scaled_adapter(family)
    rows = len(adapter._decoder.get_input_embeddings().weight)
    adapter._check_rows([rows - 1])
    with pytest.raises(ModelError, match=f"needs token {rows} .* embeddings for {rows} tokens"):
        adapter._check_rows([0, rows])


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a": ' + b"1" * 5000 + b"}", b"\xff", b""])
def test_a_config_that_cannot_be_read(scaled_folder, tmp_path, content):
    folder = shutil.copytree(scaled_folder("smolvlm"), tmp_path / "model")
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json is broken"):
        load_adapter(str(folder))


def test_a_name_too_long_for_a_folder():
    with pytest.raises(ModelError, match=r"cannot be found: .*File name too long"):
        load_adapter("x" * 5000)


@pytest.mark.parametrize("fps", [1e-12, 1e-308])
def test_a_rate_too_low_for_any_position(scaled_adapter, fps):
    with pytest.raises(ConfigError, match="position_limit is"):
        StreamEngine(scaled_adapter("qwen2_5_vl"), EngineConfig(fps=fps))
