"""Models that cannot be loaded: one clear refusal, whatever is wrong with the folder."""

from __future__ import annotations

import json
import shutil
import socket

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from infinipot_ros.core import ConfigError, EngineConfig, ModelError, StreamEngine
from infinipot_ros.models import load_adapter, loading, placement
from infinipot_ros.models.sources import ModelFiles


@pytest.fixture
def folder(tiny_model, tmp_path):
    """Return a copy of a working model's folder, to be broken."""
    return shutil.copytree(tiny_model(), tmp_path / "model")


def _edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def _truncate(folder, size):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])


def _drop_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    (name,) = (name for name in tensors if name.endswith("layers.1.mlp.up_proj.weight"))
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _no_template(folder):
    (folder / "chat_template.jinja").unlink()


def _config(change):
    return lambda folder: _edit(folder / "config.json", change)


def _slide(config):
    config["text_config"].update(layer_types=["full_attention", "sliding_attention"])
    config["text_config"].update(use_sliding_window=True, sliding_window=16)


BROKEN = {
    "cut in the header": (lambda f: _truncate(f, 1000), r"model\.safetensors is cut short: it has"),
    "cut in the data": (lambda f: _truncate(f, -4), r"it has \d+ of \d+ bytes"),
    "emptied": (lambda f: _truncate(f, 0), r"cut short: it has 0 bytes"),
    "a pointer": (
        lambda f: (f / "model.safetensors").write_text(
            "version https://git-lfs.github.com/spec/v1"
        ),
        "pointer of Git LFS, not the weights: run `git lfs pull`",
    ),
    "widened": (_config(lambda c: c["text_config"].update(hidden_size=256)), "could not be loaded"),
    "a tensor less": (_drop_tensor, r"lack 1 of the weights .*layers\.1\.mlp\.up_proj"),
    "family": (
        lambda f: (f / "config.json").write_text('{"model_type": "bert"}'),
        "family 'bert', which is not supported yet; supported: qwen2_vl, qwen2_5_vl, ",
    ),
    "refused family": (
        lambda f: (f / "config.json").write_text('{"model_type": "gemma3"}'),
        "family 'gemma3', whose memory cannot be capped honestly: most of its layers slide",
    ),
    "other format": (
        lambda f: (f / "config.json").write_text('{"model_type": "internvl_chat"}'),
        "family 'internvl_chat': .* ends in '-hf'",
    ),
    "no family": (lambda f: (f / "config.json").write_text("{}"), "names no model_type"),
    "class": (
        _config(lambda c: c.update(architectures=["Qwen2_5_VLModel"])),
        "is a Qwen2_5_VLModel; .* a Qwen2_5_VLForConditionalGeneration is needed",
    ),
    "sliding layers": (_config(_slide), "1 of sliding_attention, among 2"),
    "no config": (lambda f: (f / "config.json").unlink(), "holds no config.json"),
    "half a config": (lambda f: (f / "config.json").write_text("{"), "config.json is broken"),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        "neither model.safetensors nor model.safetensors.index.json",
    ),
    "pickled weights": (_pickled, r"and pytorch_model\.bin may run code when it is read"),
    "no frames": (
        lambda f: (f / "preprocessor_config.json").unlink(),
        "none of processor_config.json, preprocessor_config.json, video_preprocessor_config.json",
    ),
    "no template": (
        _no_template,
        "no chat template: none is in chat_template.jinja, chat_template.json, "
        "processor_config.json, tokenizer_config.json",
    ),
    "words": (lambda f: (f / "tokenizer.json").write_text("{}"), "could not be loaded"),
}


@pytest.mark.parametrize("harm, words", BROKEN.values(), ids=BROKEN)
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


@pytest.fixture
def sharded(tiny_model, tmp_path):
    """Return the folder of a model whose weights are in several files."""
    from transformers import Qwen2_5_VLForConditionalGeneration

    folder = shutil.copytree(tiny_model(), tmp_path / "sharded")
    network = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    network.save_pretrained(folder, max_shard_size="200KB")
    return folder


def test_missing_weight_files_are_all_named(sharded):
    names = sorted(path.name for path in sharded.glob("model-*.safetensors"))
    assert len(names) >= 3
    load_adapter(str(sharded), device="cpu")
    for name in names[1:]:
        (sharded / name).unlink()
    words = f"{len(names) - 1} of {len(names)} weight files are missing: {', '.join(names[1:])}"
    with pytest.raises(ModelError, match=words):
        load_adapter(str(sharded), device="cpu")


def test_a_broken_index_is_refused(sharded):
    (sharded / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    with pytest.raises(ModelError, match="has no weight_map"):
        load_adapter(str(sharded), device="cpu")


def test_a_model_that_does_not_fit_is_refused_with_the_numbers(folder, monkeypatch):
    weights = (folder / "model.safetensors").stat().st_size
    loaded = []
    monkeypatch.setattr(loading, "_load_network", loaded.append)
    monkeypatch.setattr(placement, "free_bytes", lambda _device: weights // 2)
    # A token takes keys and values, 2 layers, 4 heads, 16 channels, 4 bytes: 1 KiB.
    with pytest.raises(ModelError) as refusal:
        load_adapter(str(folder), device="cpu", cache_tokens=2 * 2**20)
    assert not loaded
    message = str(refusal.value)
    for words in (
        f"needs {weights / 2**30:.2f} GiB for its weights",
        "and 2.00 GiB for its cache",
        f"{weights / 2**31:.2f} GiB are free on cpu",
        "smaller model",
        "set dtype to 'bfloat16'",
    ):
        assert words in message
    assert "quantization" not in message  # no help on a CPU


@pytest.fixture
def half_downloaded(hub):
    """Return a maker of a hub model in shards of which one was downloaded, and its bytes."""

    def make(total_size=None):
        from transformers import Qwen2_5_VLForConditionalGeneration

        folder = hub("somebody/large")
        network = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)
        (folder / "model.safetensors").unlink()
        network.save_pretrained(folder, max_shard_size="200KB")
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        size = index["metadata"].pop("total_size")
        if total_size is not None:
            index["metadata"]["total_size"] = size * total_size
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for shard in sorted(folder.glob("model-*.safetensors"))[1:]:
            shard.unlink()
        return size

    return make


def test_a_hub_model_that_cannot_fit_is_not_downloaded_first(half_downloaded, monkeypatch):
    size = half_downloaded(total_size=1)
    asked, find = [], ModelFiles.find

    def recorded(self, file):
        asked.append(file)
        return find(self, file)

    monkeypatch.setattr(ModelFiles, "find", recorded)
    for options, free in (({}, size - 1), ({"dtype": "bfloat16"}, size // 2 - 1)):
        monkeypatch.setattr(placement, "free_bytes", lambda _device, free=free: free)
        with pytest.raises(ModelError, match=r"needs .* GiB for its weights"):
            load_adapter("somebody/large", device="cpu", **options)
        assert "model.safetensors.index.json" in asked
        assert not [file for file in asked if file.endswith(".safetensors")]
    # Where it would fit, the files are asked for; here the hub is out of reach.
    monkeypatch.setattr(placement, "free_bytes", lambda _device: size)
    with pytest.raises(ModelError, match="weight files are missing"):
        load_adapter("somebody/large", device="cpu")


def test_an_index_that_names_no_size_leaves_it_to_the_files(half_downloaded, monkeypatch):
    half_downloaded()
    monkeypatch.setattr(placement, "free_bytes", lambda _device: 1)
    with pytest.raises(ModelError, match="weight files are missing"):
        load_adapter("somebody/large", device="cpu")


def test_the_cache_counts_and_so_does_the_number_format(folder, monkeypatch):
    weights = (folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(placement, "free_bytes", lambda _device: weights + 2**20)
    load_adapter(str(folder), device="cpu", cache_tokens=2**10)
    with pytest.raises(ModelError, match="for its cache"):
        load_adapter(str(folder), device="cpu", cache_tokens=2**11)
    load_adapter(str(folder), device="cpu", dtype="bfloat16", cache_tokens=2**11)
    with pytest.raises(ModelError, match=r"0\.01 GiB for its cache"):
        StreamEngine.from_pretrained(
            str(folder), EngineConfig(max_tokens=2**13, policy="sliding_window"), device="cpu"
        )


def test_a_gpu_is_loaded_past_the_host_only_with_accelerate(folder, monkeypatch):
    weights = (folder / "model.safetensors").stat().st_size
    gpu, given = torch.device("cuda", 0), []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(placement, "free_bytes", lambda at: weights if at == gpu else weights // 2)

    def load(_files, _library, _placement, arguments):
        given.append(arguments)
        raise ModelError("stopped before loading")

    monkeypatch.setattr(loading, "_load_network", load)
    for installed, words in ((True, "stopped"), (False, r"free on cpu: `pip install accelerate`")):
        monkeypatch.setattr(loading, "has_library", lambda _name, there=installed: there)
        with pytest.raises(ModelError, match=words):
            load_adapter(str(folder))
    assert given == [{"device_map": {"": gpu}}]
    with pytest.raises(ModelError, match=r"free on cuda:0: .*set quantization") as refusal:
        load_adapter(str(folder), cache_tokens=2**20)
    assert "device_map" not in str(refusal.value)  # there is one GPU only


def test_a_cap_beyond_the_machine_is_refused_with_its_size(tiny_model):
    adapter = load_adapter(str(tiny_model()), device="cpu")
    with pytest.raises(ConfigError, match=r"max_tokens is 1\d+: \d+ MiB .* lower max_tokens"):
        StreamEngine(adapter, EngineConfig(max_tokens=10**12, policy="sliding_window"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_loads_and_answers_on_a_cpu(tiny_model, dtype):
    engine = StreamEngine.from_pretrained(
        str(tiny_model()),
        EngineConfig(max_tokens=48, max_new_tokens=4, policy="sliding_window", block_steps=1),
        device="cpu",
        dtype=dtype,
    )
    wanted = getattr(torch, dtype)
    assert engine.adapter.shape.dtype == engine.cache.keys.dtype == wanted
    frames = np.random.default_rng(0).integers(0, 256, (20, 56, 84, 3), np.uint8)
    engine.observe(list(frames), [n * 10**8 for n in range(20)])
    assert engine.stats().compressions > 0
    assert engine.ask("where is the mug ?").n_tokens > 0
    assert engine.cache.keys.isfinite().all()
    assert engine.cache.values.isfinite().all()


class LookedAtNetworkError(BaseException):
    """No plain exception: the library would try again, and then go on."""


def test_a_folder_never_looks_at_the_network(folder, monkeypatch):
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    attempts = []

    def refuse(*arguments, **_):
        attempts.append(arguments)
        raise LookedAtNetworkError

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    load_adapter(str(folder), device="cpu")
    load_adapter("roomworld", device="cpu")
    assert not attempts
    # The same blocks do catch what looks for a hub id.
    with pytest.raises(LookedAtNetworkError):
        load_adapter("nobody/nothing", device="cpu")
    assert attempts


@pytest.fixture
def hub(tiny_model, tmp_path, monkeypatch):
    """Return a maker of hub ids whose files were downloaded before."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    def download(model):
        home = tmp_path / f"models--{model.replace('/', '--')}"
        shutil.copytree(tiny_model(), home / "snapshots" / "0123abcd")
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text("0123abcd")
        return home / "snapshots" / "0123abcd"

    return download


def test_offline_a_hub_id_is_taken_from_what_was_downloaded(hub, tiny_model):
    hub("somebody/model")
    found = load_adapter("somebody/model", device="cpu")
    assert found.name == "somebody/model"
    ids = torch.arange(8)
    torch.testing.assert_close(
        found.embed(ids), load_adapter(str(tiny_model()), device="cpu").embed(ids)
    )


@pytest.mark.parametrize(
    "file, words",
    [
        ("config.json", "config.json was not found"),
        ("model.safetensors", "neither model.safetensors nor"),
    ],
)
def test_offline_a_half_download_is_refused(hub, file, words):
    (hub("somebody/model") / file).unlink()
    with pytest.raises(ModelError, match=f"'somebody/model' could not be loaded: .*{words}"):
        load_adapter("somebody/model", device="cpu")
