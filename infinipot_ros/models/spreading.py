"""Parts of a model: its decoder layers, which can be spread and quantized, and all else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from infinipot_ros.core.errors import ModelError
from infinipot_ros.models.placement import Need, Placement, check_memory, free_bytes, gib, spread

_BITS = {"8bit": 8.0, "4bit": 4.5}  # 4 bits have a float32 scale for each 64
_SMALLER = "take a smaller model"


@dataclass(frozen=True)
class ModelParts:
    """What a model consists of, by module name.

    Attributes:
        layers: bytes of each decoder layer, in order.
        rest: bytes of every other module or parameter: vision encoder, embeddings, head.
    """

    layers: dict[str, int]
    rest: dict[str, int]

    def arguments(self, model: str, placement: Placement, cache: int) -> dict[str, Any]:
        """Return what ``from_pretrained`` takes to put the parts in their places.

        Args:
            model: the model's name, for messages.
            placement: with a device map, a quantization, or both.
            cache: bytes of keys and values, on the first device.

        Raises:
            ModelError: the parts do not fit.
        """
        if placement.device_map:
            devices: dict[str, Any] = self._spread(model, placement, cache)
        else:
            need = Need(sum(self.layers.values()) + sum(self.rest.values()), cache)
            remedies = [_SMALLER]
            if placement.quantization == "8bit":
                remedies.append("set quantization to '4bit'")
            check_memory(model, need, placement.device, remedies)
            devices = {"": placement.device}
        out: dict[str, Any] = {"device_map": devices}
        if placement.quantization:
            out["quantization_config"] = self._quantization(placement)
        return out

    def _spread(self, model: str, placement: Placement, cache: int) -> dict[str, Any]:
        """Return the device of every part, decoder layers in order over all CUDA devices."""
        gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        free = [free_bytes(gpu) or 0 for gpu in gpus]
        first = sum(self.rest.values()) + cache
        chosen = spread(list(self.layers.values()), first, free, placement.device_map)
        if chosen is None:
            raise ModelError(
                f"model {model!r} needs {gib(first)} on {gpus[0]} for all but its decoder layers "
                f"and {gib(sum(self.layers.values()))} for those, on any; free are "
                + ", ".join(f"{gib(room)} on {gpu}" for room, gpu in zip(free, gpus, strict=True))
                + f": {_SMALLER}"
                + ("" if placement.quantization else ", or set quantization to '8bit' or '4bit'")
            )
        places = dict.fromkeys(self.rest, gpus[0])
        places.update({name: gpus[n] for name, n in zip(self.layers, chosen, strict=True)})
        return places

    def _quantization(self, placement: Placement) -> Any:
        """Return the library's settings: decoder layers quantized, what makes the frames not."""
        from transformers import BitsAndBytesConfig

        if placement.quantization == "8bit":
            return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=list(self.rest))
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=placement.dtype or torch.bfloat16,
            llm_int8_skip_modules=list(self.rest),
        )


def plan_parts(library: Any, config: Any, dtype: torch.dtype, quantization: str) -> ModelParts:
    """Return the parts of a model and their bytes, from its config alone.

    Args:
        library: transformers class of the model.
        config: its config.
        dtype: number format of the weights.
        quantization: ``8bit``, ``4bit``, or empty; counts for matrices of decoder layers.
    """
    with torch.device("meta"):
        skeleton = library(config)
    layers = skeleton.get_decoder().layers
    inside = set(layers.modules())
    bits = _BITS.get(quantization)
    by_layer: dict[str, int] = {}
    prefix = next(name for name, module in skeleton.named_modules() if module is layers)
    for number, layer in enumerate(layers):
        by_layer[f"{prefix}.{number}"] = sum(
            int(p.numel() * bits / 8) if bits and p.dim() > 1 else p.numel() * dtype.itemsize
            for p in layer.parameters()
        )
    seen: set[nn.Parameter] = set()  # a head may share the embeddings' matrix
    rest: dict[str, int] = {}
    for name, tensors in _outside(skeleton, "", inside):
        fresh = [p for p in tensors if p not in seen]
        seen.update(fresh)
        rest[name] = sum(p.numel() for p in fresh) * dtype.itemsize
    return ModelParts(by_layer, rest)


def _outside(
    module: nn.Module, name: str, inside: set[nn.Module]
) -> Iterator[tuple[str, list[nn.Parameter]]]:
    """Yield the largest modules, and single parameters, that hold none of the given modules."""
    if module in inside:
        return
    if name and inside.isdisjoint(module.modules()):
        yield name, list(module.parameters())
        return
    start = f"{name}." if name else ""
    for key, parameter in module.named_parameters(recurse=False):
        yield f"{start}{key}", [parameter]
    for key, child in module.named_children():
        yield from _outside(child, f"{start}{key}", inside)
