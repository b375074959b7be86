"""Write a scaled-down model as a folder that loads like a published one."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from infinipot_ros.models.families import FAMILIES


class ScaledModel(NamedTuple):
    """What a family's module gives.

    Attributes:
        config: transformers config of the whole model.
        tokenizer: with chat template.
        preprocessor: content of ``preprocessor_config.json``.
    """

    config: Any
    tokenizer: Any
    preprocessor: dict[str, Any]


def write_scaled(family: str, folder: Path, *, seed: int = 0, **sizes: Any) -> Path:
    """Write a randomly initialised model with tokenizer and preprocessor, and return the folder.

    Args:
        family: ``model_type``, a key of ``FAMILIES``.
        folder: where to; made if missing.
        seed: of the weights.
        sizes: what the family's ``scaled`` function takes, such as ``layers``.

    Raises:
        KeyError: unknown family.
    """
    import torch
    import transformers

    known = FAMILIES[family]
    module = import_module(f"{__package__}.{family}")
    model: ScaledModel = module.scaled(**sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = getattr(transformers, known.library)(model.config)
    folder.mkdir(parents=True, exist_ok=True)
    network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps(model.preprocessor), encoding="utf-8"
    )
    return folder
