"""Load a model by name: embedded, local folder or hub id."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.core.errors import ConfigError, ModelError
from infinipot_ros.core.types import EMBEDDED_MODEL

_FAMILIES = ("qwen2_5_vl",)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ATTENTION = ("sdpa", "eager")


def load_adapter(
    model: str, *, device: str = "auto", dtype: str = "auto", attn_implementation: str = "sdpa"
) -> ModelAdapter:
    """Load a model and return its adapter.

    Args:
        model: ``roomworld`` (embedded), a local folder, or a hub id (``HF_HUB_OFFLINE`` holds).
        device: ``auto`` (CUDA where there is one), ``cpu``, ``cuda``, ``cuda:1``.
        dtype: ``auto`` (float32 on CPU, else as stored), ``float32``, ``bfloat16``, ``float16``.
        attn_implementation: ``sdpa`` or ``eager``.

    Raises:
        ConfigError: unknown device, dtype or attention implementation.
        ModelError: the model is missing, incomplete, or of a family that is not supported.
    """
    target = _device(device)
    if attn_implementation not in _ATTENTION:
        raise ConfigError(
            f"attn_implementation is {attn_implementation!r}; it must be one of {_ATTENTION}"
        )
    wanted = _dtype(dtype, target)
    source = _source(model)

    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise _missing(model, error) from error
    if config.model_type not in _FAMILIES:
        raise ModelError(
            f"model {model!r} is of family {config.model_type!r}; supported: {', '.join(_FAMILIES)}"
        )

    from infinipot_ros.models.qwen_vl import Qwen25VLAdapter

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        with _quiet_progress():
            network = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
                source,
                dtype=wanted,
                attn_implementation=attn_implementation,
                use_safetensors=True,
            )
        network.to(target).eval().requires_grad_(False)
        return Qwen25VLAdapter(
            model, model=network, tokenizer=tokenizer, processor_config=_processor_config(source)
        )
    except (ModelError, ConfigError):
        raise
    except Exception as error:  # a folder can be broken in more ways than there are types for
        raise _missing(model, error) from error


@contextmanager
def _quiet_progress() -> Iterator[None]:
    """Keep the library's progress bars off where nobody watches: a node's log."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    if shown and not sys.stderr.isatty():
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.enable_progress_bar()
    else:
        yield


def _source(model: str) -> str:
    """Return what from_pretrained takes, or refuse a folder that is not there."""
    if not model.strip():
        raise ModelError(
            f"model is empty; give {EMBEDDED_MODEL!r} (embedded), a local folder, or a hub id"
        )
    if model == EMBEDDED_MODEL:
        folder = Path(__file__).parent / EMBEDDED_MODEL
        if not (folder / "config.json").is_file():
            raise ModelError(f"the embedded model's files are missing from {folder}; reinstall")
        return str(folder)
    try:
        path = Path(model).expanduser()
    except RuntimeError as error:  # ~somebody has no home
        raise ModelError(f"model {model!r} cannot be found: {error}") from error
    # "org/name" is a hub id unless such a folder exists; anything else can only be a folder.
    looks_local = model.startswith((".", "/", "~")) or model.count("/") != 1
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"model folder {path} holds no config.json")
        return str(path)
    if looks_local:
        raise ModelError(
            f"model {model!r} is neither {EMBEDDED_MODEL!r} (embedded), nor an existing folder, "
            "nor a hub id of the form 'organisation/name'"
        )
    return model


def _missing(model: str, error: Exception) -> ModelError:
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    return ModelError(
        f"model {model!r} could not be loaded: {reason} (give a complete local folder, or make the "
        "hub reachable; HF_HUB_OFFLINE=1 uses only what was downloaded before)"
    )


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
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
    return target


def _dtype(dtype: str, device: torch.device) -> torch.dtype | str:
    if dtype == "auto":
        # Half precision on a CPU is slower than float32 and less exact.
        return torch.float32 if device.type == "cpu" else "auto"
    try:
        return _DTYPES[dtype]
    except KeyError:
        raise ConfigError(
            f"dtype is {dtype!r}; it must be 'auto' or one of {', '.join(_DTYPES)}"
        ) from None


def _processor_config(source: str) -> dict[str, Any]:
    from transformers.utils import cached_file

    path = cached_file(source, "preprocessor_config.json")
    content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return content
