"""Adapters of every family, on randomly initialised models of the real classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.models import load_adapter
from infinipot_ros.models.scaled import write_scaled

MakeFolder = Callable[..., Path]


@pytest.fixture(scope="session")
def scaled_folder(tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    """Return a maker of model folders: `scaled_folder(family, **sizes)`, each written once."""
    made: dict[tuple[Any, ...], Path] = {}

    def make(family: str, **sizes: Any) -> Path:
        key = (family, *sorted(sizes.items()))
        if key not in made:
            made[key] = write_scaled(family, tmp_path_factory.mktemp(family), **sizes)
        return made[key]

    return make


@pytest.fixture(scope="session")
def scaled_adapter(scaled_folder: MakeFolder) -> Callable[..., ModelAdapter]:
    """Return a loader of adapters on CPU: `scaled_adapter(family, dtype="float32", ...)`."""
    loaded: dict[tuple[Any, ...], ModelAdapter] = {}

    def load(family: str, *, dtype: str = "float32", **options: Any) -> ModelAdapter:
        key = (family, dtype, *sorted(options.items()))
        if key not in loaded:
            folder = str(scaled_folder(family))
            loaded[key] = load_adapter(folder, device="cpu", dtype=dtype, **options)
        return loaded[key]

    return load
