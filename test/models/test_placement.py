"""Options of loading: refused where they cannot work, and parts that go where they fit."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from infinipot_ros.core import ConfigError, ModelError
from infinipot_ros.models import load_adapter, placement, spreading
from infinipot_ros.models.placement import Need, Placement, check_memory, free_bytes, spread
from infinipot_ros.models.sources import ModelFiles
from infinipot_ros.models.spreading import plan_parts
from infinipot_ros.models.weights import cache_bytes_per_token, loaded_bytes, read_weights

CPU = torch.device("cpu")


def _options(**options):
    defaults = {"device": "auto", "dtype": "auto", "attention": "sdpa"}
    return Placement.of(**{**defaults, "device_map": "", "quantization": "", **options})


@pytest.fixture
def gpus(monkeypatch):
    """Let torch pretend that there are two CUDA devices, and every library installed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(placement, "has_library", lambda _name: True)


@pytest.fixture
def no_gpu(monkeypatch):
    """Let torch find no CUDA device, whatever this machine has."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"device": "mps"}, "device is 'mps'"),
        ({"device": "meta"}, "device is 'meta'"),
        ({"device": "gpu"}, "device is 'gpu'"),
        ({"device": "cuda"}, "finds no CUDA device; use 'cpu'"),
        ({"dtype": "int8"}, "dtype is 'int8'; it must be 'auto' or one of 'float32', 'bfloat16'"),
        (
            {"attn_implementation": "magic"},
            "attn_implementation is 'magic'; it must be one of 'sdpa', 'eager', 'flash_attention_2",
        ),
        ({"attn_implementation": "flash_attention_2"}, "which needs a CUDA device; .* on cpu"),
        ({"device_map": "wide"}, "device_map is 'wide'; it must be one of '', 'auto', 'balanced'"),
        ({"device_map": "auto"}, "device_map is 'auto', which needs a CUDA device"),
        ({"quantization": "2bit"}, "quantization is '2bit'; it must be one of '', '8bit', '4bit'"),
        ({"quantization": "8bit"}, "quantization is '8bit', which needs a CUDA device"),
        ({"quantization": "4bit", "device": "cpu"}, "quantization is '4bit', which needs a CUDA"),
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused(no_gpu, tiny_model, settings, words):
    with pytest.raises(ConfigError, match=words):
        load_adapter(str(tiny_model()), **settings)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"device": "cuda:2"}, "device is 'cuda:2', but there are 2 CUDA devices"),
        ({"device_map": "auto", "device": "cuda:1"}, "device is 'cuda:1'; a map spreads .* 'auto'"),
        ({"device_map": "auto", "device": "cpu"}, "device is 'cpu'; a map spreads"),
        (
            {"attention": "flash_attention_2"},
            "no flash-attn .* `pip install flash-attn`, or .*sdpa",
        ),
    ],
    ids=str,
)
def test_options_that_clash_with_the_gpus_are_refused(gpus, monkeypatch, options, words):
    monkeypatch.setattr("transformers.utils.is_flash_attn_2_available", lambda: False)
    with pytest.raises(ConfigError, match=words):
        _options(**options)


@pytest.mark.parametrize(
    "options, absent",
    [
        ({"device_map": "auto"}, "accelerate"),
        ({"quantization": "8bit"}, "accelerate"),
        ({"quantization": "4bit"}, "bitsandbytes"),
    ],
    ids=str,
)
def test_a_library_that_is_missing_is_named(gpus, monkeypatch, options, absent):
    monkeypatch.setattr(placement, "has_library", lambda name: name != absent)
    with pytest.raises(ConfigError, match=f"which needs {absent}: `pip install {absent}`"):
        _options(**options)


def test_flash_attention_takes_no_float32(gpus, monkeypatch):
    monkeypatch.setattr("transformers.utils.is_flash_attn_2_available", lambda: True)
    with pytest.raises(ConfigError, match="takes no float32: set dtype"):
        _options(attention="flash_attention_2", dtype="float32")
    as_stored = _options(attention="flash_attention_2")
    as_stored.check_stored_dtype(torch.bfloat16)
    with pytest.raises(ConfigError, match="takes no float32"):
        as_stored.check_stored_dtype(torch.float32)


@pytest.mark.parametrize(
    "options, device, dtype",
    [
        ({}, "cuda:0", None),
        ({"device": "cuda"}, "cuda:0", None),
        ({"device": "cuda:1", "dtype": "float16"}, "cuda:1", torch.float16),
        ({"device": "cpu"}, "cpu", torch.float32),
        ({"device": "cpu", "dtype": "bfloat16"}, "cpu", torch.bfloat16),
    ],
    ids=str,
)
def test_defaults_follow_the_device(gpus, options, device, dtype):
    found = _options(**options)
    assert (str(found.device), found.dtype) == (device, dtype)


def test_stored_quantized_weights_are_not_quantized_again(monkeypatch):
    from transformers import BitsAndBytesConfig, Qwen2_5_VLConfig

    from infinipot_ros.models.loading import _check_quantized

    config = Qwen2_5_VLConfig()
    _check_quantized("m", config, "8bit")  # nothing is stored quantized
    config.quantization_config = BitsAndBytesConfig(load_in_8bit=True).to_dict()
    with pytest.raises(ConfigError, match="'4bit', but the weights of 'm' are stored quantized"):
        _check_quantized("m", config, "4bit")
    monkeypatch.setattr(
        "transformers.quantizers.quantizer_bnb_8bit.is_accelerate_available", lambda: True
    )
    monkeypatch.setattr(
        "transformers.quantizers.quantizer_bnb_8bit.is_bitsandbytes_available", lambda: False
    )
    with pytest.raises(
        ModelError, match=r"\(bitsandbytes\), and this machine lacks .*bitsandbytes"
    ):
        _check_quantized("m", config, "")


# -- memory ----------------------------------------------------------------------------------


def test_free_memory_of_the_host_is_what_the_system_says():
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total = 1024 * int(lines["MemTotal"].split()[0])
    available = 1024 * int(lines["MemAvailable"].split()[0])
    assert abs(free_bytes(CPU) - available) < total // 4


def test_an_integrated_gpu_counts_what_the_host_can_free(monkeypatch):
    class Properties:
        is_integrated = True

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (2**30, 8 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 5 * 2**20)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: Properties)
    monkeypatch.setattr(placement, "_available_on_host", lambda: 6 * 2**30)
    device = torch.device("cuda", 0)
    assert free_bytes(device) == 6 * 2**30
    Properties.is_integrated = False
    assert free_bytes(device) == 2**30 + 4 * 2**20


def test_exactly_what_is_free_fits(monkeypatch):
    monkeypatch.setattr(placement, "free_bytes", lambda _device: 100)
    check_memory("m", Need(60, 40), CPU, [])
    with pytest.raises(
        ModelError, match=r"0\.00 GiB for its weights and .* on cpu: this, or lower max_t"
    ):
        check_memory("m", Need(60, 41), CPU, ["this"])
    with pytest.raises(ModelError, match=r"on cpu: this, or that$"):
        check_memory("m", Need(101), CPU, ["this", "that"])
    monkeypatch.setattr(placement, "free_bytes", lambda _device: None)
    check_memory("m", Need(2**60), CPU, [])


@pytest.mark.parametrize("mode", ["auto", "balanced", "sequential"])
def test_layers_are_spread_as_an_exhaustive_search_would(mode):
    random = np.random.default_rng(0)
    spread_out = 0
    for _ in range(300):
        layers = random.integers(1, 10, random.integers(1, 7)).tolist()
        free = random.integers(0, 31, random.integers(1, 4)).tolist()
        first = int(random.integers(0, 10))
        fitting = {
            devices: max(used)
            for devices in itertools.combinations_with_replacement(range(len(free)), len(layers))
            for used in [_used(layers, first, devices, len(free))]
            if all(use <= room for use, room in zip(used, free, strict=True))
        }
        chosen = spread(layers, first, free, mode)
        if not fitting:
            assert chosen is None
        elif mode == "sequential":
            assert tuple(chosen) == min(fitting)
        else:
            assert fitting[tuple(chosen)] == min(fitting.values())
            spread_out += len(set(chosen)) > 1
    assert mode == "sequential" or spread_out > 50


def _used(layers, first, devices, number):
    used = [first, *[0] * (number - 1)]
    for size, device in zip(layers, devices, strict=True):
        used[device] += size
    return used


# -- parts -----------------------------------------------------------------------------------


@pytest.fixture
def parts_of(tiny_model):
    """Return a maker of the parts of the tiny model, and its files."""
    import transformers

    folder = tiny_model()
    config = transformers.AutoConfig.from_pretrained(folder)
    library = transformers.Qwen2_5_VLForConditionalGeneration

    def make(dtype=torch.float32, quantization=""):
        return plan_parts(library, config, dtype, quantization)

    return make, ModelFiles.of(str(folder)), config


def test_parts_weigh_what_the_files_hold(parts_of):
    make, files, _ = parts_of
    parts, tensors = make(), read_weights(files).values()
    assert sum(parts.layers.values()) + sum(parts.rest.values()) == loaded_bytes(tensors, None)
    half = make(torch.bfloat16)
    assert sum(half.layers.values()) + sum(half.rest.values()) == loaded_bytes(
        tensors, torch.bfloat16
    )
    assert list(parts.layers) == [f"model.language_model.layers.{n}" for n in range(2)]
    assert parts.rest["lm_head"] == 0  # it is the embeddings' matrix


@pytest.mark.parametrize("quantization, bits", [("8bit", 8), ("4bit", 4.5)])
def test_only_matrices_of_decoder_layers_are_quantized(parts_of, monkeypatch, quantization, bits):
    monkeypatch.setattr(placement, "free_bytes", lambda _device: 2**40)
    make, _, config = parts_of
    plain, small = make(torch.bfloat16), make(torch.bfloat16, quantization)
    assert small.rest == plain.rest
    hidden, inner = config.text_config.hidden_size, config.text_config.intermediate_size
    matrices = 4 * hidden * hidden + 3 * hidden * inner
    vectors = 3 * hidden + 2 * hidden  # biases of q, k and v; two norms
    for size in small.layers.values():
        assert size == pytest.approx(matrices * bits / 8 + 2 * vectors)
    device = torch.device("cuda", 1)
    where = Placement(device, None, "sdpa", "", quantization)
    arguments = small.arguments("m", where, 0)
    assert arguments["device_map"] == {"": device}
    settings = arguments["quantization_config"]
    assert (settings.load_in_8bit, settings.load_in_4bit) == (bits == 8, bits != 8)
    assert {"model.visual", "lm_head"} <= set(settings.llm_int8_skip_modules)


def test_parts_are_spread_over_the_gpus_in_order(gpus, parts_of, monkeypatch):
    make, _, _ = parts_of
    parts = make()
    first, layer = sum(parts.rest.values()), parts.layers["model.language_model.layers.0"]
    zero, one = torch.device("cuda", 0), torch.device("cuda", 1)

    def place(free, mode="auto", cache=0):
        monkeypatch.setattr(spreading, "free_bytes", lambda device: free[device.index])
        where = Placement(zero, None, "sdpa", mode, "")
        return parts.arguments("m", where, cache)["device_map"]

    spread_out = place([first + layer, layer])
    assert spread_out["model.language_model.layers.0"] == zero
    assert spread_out["model.language_model.layers.1"] == one
    assert {spread_out[name] for name in parts.rest} == {zero}
    assert set(place([2**40, 2**40], "sequential").values()) == {zero}
    # The cache is on the first: with it there, both layers have to go to the second.
    assert place([first + layer, 2 * layer], cache=1)["model.language_model.layers.0"] == one
    with pytest.raises(
        ModelError, match=r"needs .* on cuda:0 .* free are .* on cuda:0, .* on cuda:1"
    ):
        place([first + layer, layer], cache=1)


def test_a_cache_token_takes_what_the_adapter_says(parts_of):
    _, files, config = parts_of
    shape = load_adapter(files.name, device="cpu").shape
    assert cache_bytes_per_token(config, 4) == shape.bytes_per_token
