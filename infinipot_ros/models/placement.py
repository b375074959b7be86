"""On which device and in which number format a model goes, and whether it fits there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch

from infinipot_ros.core.errors import ConfigError, ModelError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = ("sdpa", "eager", "flash_attention_2")
DEVICE_MAPS = ("", "auto", "balanced", "sequential")
QUANTIZATIONS = ("", "8bit", "4bit")

_GIB = 2**30


@dataclass(frozen=True)
class Placement:
    """What the loading options ask for, checked against the machine.

    Attributes:
        device: where the model goes, or its first part.
        dtype: number format of the weights; None keeps the stored one.
        attention: name of the attention implementation.
        device_map: how the layers are spread over GPUs; empty for not at all.
        quantization: ``8bit``, ``4bit``, or empty for none.
    """

    device: torch.device
    dtype: torch.dtype | None
    attention: str
    device_map: str
    quantization: str

    @classmethod
    def of(
        cls, *, device: str, dtype: str, attention: str, device_map: str, quantization: str
    ) -> Placement:
        """Check the options.

        Raises:
            ConfigError: an option is unknown, clashes with another, or needs what is not there.
        """
        _one_of("attn_implementation", attention, ATTENTION)
        _one_of("device_map", device_map, DEVICE_MAPS)
        _one_of("quantization", quantization, QUANTIZATIONS)
        if dtype != "auto":
            _one_of("dtype", dtype, tuple(DTYPES), also="'auto' or ")
        target = _device(device)
        if device_map:
            _check_device_map(device_map, device, target)
        if quantization:
            _need_cuda(f"quantization is {quantization!r}", target)
            _need_library(f"quantization is {quantization!r}", "accelerate")
            _need_library(f"quantization is {quantization!r}", "bitsandbytes")
        # Half precision on a CPU is slower than float32 and less exact.
        wanted = DTYPES.get(dtype) or (torch.float32 if target.type == "cpu" else None)
        if attention == "flash_attention_2":
            _check_flash(target, wanted)
        return cls(target, wanted, attention, device_map, quantization)

    def check_stored_dtype(self, stored: torch.dtype | None) -> None:
        """Refuse what the stored number format rules out, once the config is known.

        Raises:
            ConfigError: flash attention on float32 weights.
        """
        if self.attention == "flash_attention_2" and self.dtype is None:
            _check_flash(self.device, stored)


class Need(NamedTuple):
    """Bytes that a device must have free.

    Attributes:
        weights: bytes of weights.
        cache: bytes of keys and values.
    """

    weights: int
    cache: int = 0


def check_memory(model: str, need: Need, device: torch.device, remedies: Sequence[str]) -> None:
    """Refuse a model that does not fit a device, before anything is loaded.

    Args:
        model: its name, for the message.
        need: what must be free.
        device: where.
        remedies: what would help, beside a smaller cache.

    Raises:
        ModelError: with what is needed, what is free, and what would help.
    """
    free = free_bytes(device)
    if free is not None and need.weights + need.cache > free:
        cache = f" and {gib(need.cache)} for its cache" if need.cache else ""
        remedies = [*remedies, *(["lower max_tokens"] if need.cache else [])]
        raise ModelError(
            f"model {model!r} needs {gib(need.weights)} for its weights{cache}; "
            f"{gib(free)} are free on {device}: " + ", or ".join(remedies)
        )


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that can be allocated on a device, None where the system does not say."""
    if device.type == "cpu":
        return _available_on_host()
    free, total = torch.cuda.mem_get_info(device)
    # What torch holds and does not use is free too.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if torch.cuda.get_device_properties(device).is_integrated:
        # It shares the host's memory, and its driver counts file pages that give way as taken.
        free = max(free, min(_available_on_host() or 0, total))
    return int(free)


def spread(layers: Sequence[int], first: int, free: Sequence[int], mode: str) -> list[int] | None:
    """Return the device of each layer, None if they do not fit.

    Layers stay in order, so that a pass crosses from device to device once.

    Args:
        layers: bytes of each decoder layer.
        first: bytes of all else, which goes on the first device: vision, embeddings, head, cache.
        free: free bytes of each device.
        mode: ``sequential`` fills one device after the other; ``balanced`` and ``auto`` keep the
            fullest as empty as can be.
    """
    whole = _fill(layers, first, free)
    if mode == "sequential" or whole is None:
        return whole
    low, high = max([first, *layers]), first + sum(layers)
    while low < high:  # the least that the fullest device must hold
        middle = (low + high) // 2
        if _fill(layers, first, [min(room, middle) for room in free]) is None:
            low = middle + 1
        else:
            high = middle
    return _fill(layers, first, [min(room, low) for room in free]) or whole


def gib(size: int) -> str:
    """Return bytes in words."""
    return f"{size / _GIB:.2f} GiB"


def has_library(name: str) -> bool:
    """Return whether a library is installed, without importing it."""
    return find_spec(name) is not None


def _fill(layers: Sequence[int], first: int, room: Sequence[int]) -> list[int] | None:
    device, used, out = 0, first, []
    if not room or first > room[0]:
        return None
    for size in layers:
        while used + size > room[device]:
            device, used = device + 1, 0
            if device == len(room):
                return None
        used += size
        out.append(device)
    return out


def _available_on_host() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else 1024 * int(found.split()[1])


def _device(device: str) -> torch.device:
    if device == "auto":
        return _numbered(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    target: torch.device | None
    try:
        target = torch.device(device)
    except RuntimeError:
        target = None
    if target is None or target.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {device!r}; it must be 'auto', 'cpu', 'cuda' or 'cuda:N'")
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {device!r}, but torch finds no CUDA device; use 'cpu'")
    if target.type == "cuda" and (target.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device is {device!r}, but there are {torch.cuda.device_count()} CUDA devices"
        )
    return _numbered(target)


def _numbered(device: torch.device) -> torch.device:
    """Return the device with its number: `cuda` alone is whichever is current."""
    if str(device) == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _check_device_map(device_map: str, device: str, target: torch.device) -> None:
    what = f"device_map is {device_map!r}"
    if device not in ("auto", "cuda"):
        raise ConfigError(
            f"{what} and device is {device!r}; a map spreads the model over all CUDA devices: "
            "set device to 'auto', or leave device_map empty"
        )
    _need_cuda(what, target)
    _need_library(what, "accelerate")


def _check_flash(target: torch.device, dtype: torch.dtype | None) -> None:
    what = "attn_implementation is 'flash_attention_2'"
    _need_cuda(what, target)
    from transformers.utils import is_flash_attn_2_available

    if not is_flash_attn_2_available():
        raise ConfigError(
            f"{what}, and no flash-attn 2.3.3 or newer is installed: `pip install flash-attn`, or "
            "take 'sdpa', which needs nothing and is fast too"
        )
    if dtype == torch.float32:
        raise ConfigError(
            f"{what}, which takes no float32: set dtype to 'bfloat16' or 'float16', or take 'sdpa'"
        )


def _need_cuda(what: str, target: torch.device) -> None:
    if target.type != "cuda":
        raise ConfigError(
            f"{what}, which needs a CUDA device; here the model runs on {target}: leave it at its "
            "default"
        )


def _need_library(what: str, library: str) -> None:
    if not has_library(library):
        raise ConfigError(f"{what}, which needs {library}: `pip install {library}`")


def _one_of(name: str, value: object, choices: tuple[str, ...], also: str = "") -> None:
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ConfigError(f"{name} is {value!r}; it must be {also}one of {listed}")
