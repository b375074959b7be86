"""Load a model by name: embedded, local folder or hub id."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch

from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.core.errors import ConfigError, ModelError
from infinipot_ros.models.families import find_family, refuse_forgetting_layers
from infinipot_ros.models.placement import Need, Placement, check_memory, has_library
from infinipot_ros.models.sources import ModelFiles, could_not_load
from infinipot_ros.models.spreading import plan_parts
from infinipot_ros.models.weights import (
    announced_bytes,
    cache_bytes_per_token,
    loaded_bytes,
    read_weights,
)

_SHOWN = 3  # names of missing tensors in a message


def load_adapter(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attn_implementation: str = "sdpa",
    device_map: str = "",
    quantization: str = "",
    cache_tokens: int = 0,
) -> ModelAdapter:
    """Load a model and return its adapter.

    All that can be refused is refused before the first weight is read: an unsupported family,
    options that cannot work here, missing or broken files, too little memory.

    Args:
        model: ``roomworld`` (embedded), a local folder, or a hub id (``HF_HUB_OFFLINE`` holds).
        device: ``auto`` (CUDA where there is one), ``cpu``, ``cuda``, ``cuda:1``.
        dtype: ``auto`` (float32 on CPU, else as stored), ``float32``, ``bfloat16``, ``float16``.
        attn_implementation: ``sdpa``, ``eager``, or ``flash_attention_2`` where flash-attn is
            installed.
        device_map: ``auto``, ``balanced`` or ``sequential`` spread the decoder's layers over all
            CUDA devices; empty puts the model on one.  All else, the cache too, is on the first.
        quantization: ``8bit`` or ``4bit`` weights of the decoder's layers, by bitsandbytes; empty
            for none.
        cache_tokens: tokens that a cache will hold, counted when memory is checked; 0: unknown.

    Raises:
        ConfigError: an option is unknown, clashes with another, or needs what is not installed.
        ModelError: the model is missing, incomplete, too large, or of a family that is not
            supported.
    """
    placement = Placement.of(
        device=device,
        dtype=dtype,
        attention=attn_implementation,
        device_map=device_map,
        quantization=quantization,
    )
    files = ModelFiles.of(model)
    raw = files.config()
    family = find_family(model, raw["model_type"])
    _check_architecture(model, raw, family.library)

    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(files.source, local_files_only=files.local)
        refuse_forgetting_layers(model, config)
        placement.check_stored_dtype(_stored_dtype(config))
        _check_quantized(model, config, quantization)
        template, processor_config = files.chat_template(), files.processor_config()
        library = getattr(transformers, family.library)
        arguments = _place(files, config, library, placement, cache_tokens)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            files.source, local_files_only=files.local
        )
        tokenizer.chat_template = template
        network = _load_network(files, library, placement, arguments)
        adapter = getattr(import_module(f"{__package__}.{family.module}"), family.adapter)
        loaded: ModelAdapter = adapter(
            model, model=network, tokenizer=tokenizer, processor_config=processor_config
        )
        _try_encoder(loaded)
        return loaded
    except (ModelError, ConfigError):
        raise
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"model {model!r} does not fit {placement.device}: {str(error).splitlines()[0]}"
        ) from error
    except Exception as error:  # a folder can be broken in more ways than there are types for
        raise could_not_load(model, error) from error


def _place(
    files: ModelFiles, config: Any, library: Any, placement: Placement, cache_tokens: int
) -> dict[str, Any]:
    """Check the weights' files and the memory; return where the library is to put them."""
    stored = _stored_dtype(config)
    wanted = placement.dtype or stored
    dtype = wanted or torch.float32
    cache = cache_tokens * cache_bytes_per_token(config, dtype.itemsize)
    if placement.device_map or placement.quantization:
        parts = plan_parts(library, config, dtype, placement.quantization)
        arguments = parts.arguments(files.name, placement, cache)
        read_weights(files)
        return arguments
    remedies = _remedies(placement, dtype)
    # What cannot fit need not be downloaded first.  A config that names no format says nothing of
    # how much the stored weights grow; the files will.
    if announced := announced_bytes(files):
        growth = dtype.itemsize / (stored or torch.float32).itemsize
        if getattr(config, "quantization_config", None) is not None:
            growth = min(growth, 1.0)  # codes stay as they are
        early = Need(round(announced * growth), cache)
        check_memory(files.name, early, placement.device, remedies)
    need = Need(loaded_bytes(read_weights(files).values(), wanted), cache)
    check_memory(files.name, need, placement.device, remedies)
    if placement.device.type == "cpu":
        return {}
    if has_library("accelerate"):
        return {"device_map": {"": placement.device}}
    # Without it the library loads into the host's memory first.
    host = torch.device("cpu")
    check_memory(files.name, Need(need.weights), host, ["`pip install accelerate` loads past it"])
    return {}


def _stored_dtype(config: Any) -> torch.dtype | None:
    """Return the number format that the config names, None where it names none."""
    dtype = config.dtype or config.get_text_config(decoder=True).dtype
    return dtype if isinstance(dtype, torch.dtype) else None


def _remedies(placement: Placement, dtype: torch.dtype) -> list[str]:
    on_gpu = placement.device.type == "cuda"
    return [
        "take a smaller model",
        *(["set dtype to 'bfloat16'"] if dtype.itemsize > 2 else []),
        *(["set quantization to '8bit' or '4bit'"] if on_gpu else []),
        *(["set device_map to 'auto'"] if on_gpu and torch.cuda.device_count() > 1 else []),
    ]


def _load_network(
    files: ModelFiles, library: Any, placement: Placement, arguments: dict[str, Any]
) -> Any:
    """Load the weights; refuse them where some are not in the files."""
    with _quiet_progress():
        network, info = library.from_pretrained(
            files.source,
            dtype=placement.dtype or "auto",
            attn_implementation=placement.attention,
            use_safetensors=True,
            local_files_only=files.local,
            output_loading_info=True,
            **arguments,
        )
    # The library fills these with random numbers and goes on.
    if missing := sorted(info["missing_keys"]):
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise could_not_load(
            files.name,
            f"its files lack {len(missing)} of the weights that {library.__name__} has: "
            f"{', '.join(missing[:_SHOWN])}{more}",
        )
    if not arguments and placement.device.type != "cpu":
        network.to(placement.device)
    return network.eval().requires_grad_(False)


def _check_architecture(model: str, raw: dict[str, Any], library: str) -> None:
    named = raw.get("architectures")
    named = named if isinstance(named, list) else [named] if named else []
    if named and library not in named:
        raise ModelError(
            f"model {model!r} is a {', '.join(map(str, named))}; of its family "
            f"{raw['model_type']!r} a {library} is needed, which generates text"
        )


def _check_quantized(model: str, config: Any, quantization: str) -> None:
    """Refuse weights that are stored quantized where the library for them is missing."""
    stored = getattr(config, "quantization_config", None)
    if stored is None:
        return
    settings = stored if isinstance(stored, dict) else stored.to_dict()
    method = settings.get("quant_method", "unknown")
    method = getattr(method, "value", method)
    if quantization:
        raise ConfigError(
            f"quantization is {quantization!r}, but the weights of {model!r} are stored quantized "
            f"already ({method}): leave it empty"
        )
    from transformers.quantizers import AutoHfQuantizer

    try:
        AutoHfQuantizer.from_config(stored).validate_environment()
    except Exception as error:  # each library has its own ways to be missing
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"the weights of {model!r} are stored quantized ({method}), and this machine lacks "
            f"what reads them: {reason}"
        ) from error


def _try_encoder(adapter: ModelAdapter) -> None:
    """Encode one grey step, so that files which do not fit together are found out at once.

    Raises:
        ModelError: another number of tokens than said comes out, or something that is no number.
    """
    preprocess = adapter.preprocessor(0, 0)
    frame = np.full((96, 128, 3), 127, np.uint8)
    pixels, grid = preprocess([frame] * adapter.frames_per_step)
    with torch.inference_mode():
        block = adapter.encode(adapter.to_device(pixels), grid)
    tokens, wanted = len(block.embeddings), block.steps * block.rows * block.cols
    if tokens != wanted or wanted > preprocess.max_tokens_per_step():
        raise could_not_load(
            adapter.name,
            f"its vision encoder makes {tokens} tokens of a step of {block.rows}x{block.cols}, at "
            f"most {preprocess.max_tokens_per_step()}: config.json and the preprocessor's file do "
            "not fit together",
        )
    if not bool(torch.isfinite(block.embeddings).all()):
        raise could_not_load(
            adapter.name,
            f"its vision encoder gives values that are no numbers in {adapter.shape.dtype}: set "
            "dtype to 'float32', or look at image_mean and image_std in its files",
        )


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
