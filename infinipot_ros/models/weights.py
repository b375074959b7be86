"""Are the weights there, whole, and how large: read from the files' headers alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from infinipot_ros.core.errors import ModelError
from infinipot_ros.models.sources import ModelFiles, could_not_load

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_OTHER_FORMATS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_CAST = ("F16", "BF16", "F32", "F64")  # what loading casts to the model's dtype; codes stay
_LFS = b"version https://git-lfs"


class StoredTensor(NamedTuple):
    """One tensor of a weight file.

    Attributes:
        kind: the format's name of its dtype, such as ``BF16``.
        numbers: how many it holds.
        size: bytes in the file.
    """

    kind: str
    numbers: int
    size: int


def read_weights(files: ModelFiles) -> dict[str, StoredTensor]:
    """Return every stored tensor by name, having checked that all files are there and whole.

    Files of a hub model are downloaded first.

    Raises:
        ModelError: files are missing, cut short, or pointers instead of weights.
    """
    index = files.read_json(_INDEX)
    if index is None:
        shards = [_SINGLE]
    else:
        names = index.get("weight_map")
        if not isinstance(names, dict) or not names:
            raise could_not_load(files.name, f"{_INDEX} is broken: it has no weight_map")
        shards = sorted({str(shard) for shard in names.values()})
    found = {shard: files.find(shard) for shard in shards}
    missing = [shard for shard, path in found.items() if path is None]
    if missing == [_SINGLE]:
        other = next((name for name in _OTHER_FORMATS if files.find(name)), None)
        raise could_not_load(
            files.name,
            f"it has neither {_SINGLE} nor {_INDEX}"
            + (f", and {other} may run code when it is read: convert it" if other else ""),
        )
    if missing:
        raise could_not_load(
            files.name,
            f"{len(missing)} of {len(shards)} weight files are missing: {', '.join(missing)}",
        )
    tensors: dict[str, StoredTensor] = {}
    for path in found.values():
        if path is not None:
            tensors.update(_read_header(files.name, path))
    return tensors


def announced_bytes(files: ModelFiles) -> int:
    """Return the bytes of weights that are still to be downloaded, as the index gives them.

    Returns:
        0 where nothing is to be downloaded, or no index says how much.
    """
    if files.local or not (index := files.read_json(_INDEX)):
        return 0
    from huggingface_hub import try_to_load_from_cache

    metadata, names = index.get("metadata"), index.get("weight_map")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not isinstance(names, dict) or not isinstance(total, (int, float)):
        return 0
    here = (try_to_load_from_cache(files.source, str(shard)) for shard in set(names.values()))
    return 0 if all(isinstance(path, str) for path in here) else int(total)


def loaded_bytes(tensors: Iterable[StoredTensor], dtype: torch.dtype | None) -> int:
    """Return the bytes that tensors take once loaded.

    Args:
        tensors: as stored.
        dtype: what floating-point tensors become; None keeps them.
    """
    if dtype is None:
        return sum(tensor.size for tensor in tensors)
    return sum(t.numbers * dtype.itemsize if t.kind in _CAST else t.size for t in tensors)


def cache_bytes_per_token(config: Any, itemsize: int) -> int:
    """Return the bytes of one token's keys and values.

    Args:
        config: transformers config of the whole model.
        itemsize: bytes of a number.
    """
    text = config.get_text_config(decoder=True)
    heads = text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    return 2 * int(text.num_hidden_layers) * int(kv_heads) * int(head_dim) * itemsize


def _read_header(model: str, path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one safetensors file: 8 bytes of length, a JSON header, the data."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(max(8, len(_LFS)))
        if start.startswith(_LFS):
            raise could_not_load(
                model, f"{path.name} is a pointer of Git LFS, not the weights: run `git lfs pull`"
            )
        length = int.from_bytes(start[:8], "little")
        if len(start) < 8 or 8 + length > size:
            raise _cut_short(model, path, size)
        file.seek(8)
        try:
            header = json.loads(file.read(length))
            tensors = {
                name: StoredTensor(
                    entry["dtype"],
                    math.prod(entry["shape"]),
                    entry["data_offsets"][1] - entry["data_offsets"][0],
                )
                for name, entry in header.items()
                if name != "__metadata__"
            }
            end = max((header[name]["data_offsets"][1] for name in tensors), default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise could_not_load(model, f"{path.name} is no safetensors file: {error}") from error
    if 8 + length + end > size:
        raise _cut_short(model, path, size, 8 + length + end)
    return tensors


def _cut_short(model: str, path: Path, size: int, wanted: int | None = None) -> ModelError:
    of = f" of {wanted}" if wanted else ""
    return could_not_load(model, f"{path.name} is cut short: it has {size}{of} bytes")
