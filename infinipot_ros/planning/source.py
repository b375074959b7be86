"""Find a model's config files: embedded, a folder, built in, or downloaded before."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from infinipot_ros.core.errors import ModelError
from infinipot_ros.core.frame_files import FRAME_FILES, merged_frame_files
from infinipot_ros.core.types import EMBEDDED_MODEL
from infinipot_ros.planning.config_file import read_config
from infinipot_ros.planning.figures import ModelFigures

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class KnownModel:
    """What is known of a model.

    Attributes:
        name: as the user gave it.
        origin: where the figures come from, in words.
        figures: from ``config.json``.
        preprocessor: content of the files that say how frames are prepared, None without any.
        dtype: number format in which the weights are stored.
    """

    name: str
    origin: str
    figures: ModelFigures
    preprocessor: Mapping[str, Any] | None
    dtype: str


def find_model(model: str) -> KnownModel:
    """Return the config files of a model; nothing is downloaded.

    Args:
        model: ``roomworld`` (embedded), a folder with a ``config.json``, or a hub id that is built
            in or was downloaded before.

    Raises:
        ModelError: there is no such model here, or its files cannot be planned with.
    """
    if model == EMBEDDED_MODEL:
        return _from_folder(model, _HERE.parent / "models" / EMBEDDED_MODEL, "embedded")
    try:
        folder = Path(model).expanduser()
        is_folder = bool(model.strip()) and folder.is_dir()
        snapshot = None if is_folder else _downloaded(model)
    except (RuntimeError, OSError) as error:  # ~somebody has no home; too long; not allowed
        raise ModelError(f"model {model!r} cannot be found: {error}") from error
    if is_folder:
        return _from_folder(model, folder, "config.json of the folder")
    if snapshot is not None:
        return _from_folder(model, snapshot, "config.json of the hub, downloaded before")
    known = published()
    name = next((name for name in known if name.lower() == model.lower()), None)
    if name is None:
        raise ModelError(
            f"model {model!r} is not here: give a folder that holds its config.json (no weights "
            f"are needed), or one of those whose figures are built in: {EMBEDDED_MODEL}, "
            + ", ".join(known)
        )
    config = known[name]["config"]
    return KnownModel(name, "built-in figures", read_config(config, name=name), None, "bfloat16")


@cache
def published() -> dict[str, dict[str, Any]]:
    """Return the built-in configs by hub id, each with its published number of parameters."""
    content: dict[str, dict[str, Any]] = json.loads(
        (_HERE / "published.json").read_text(encoding="utf-8")
    )
    return content


def _from_folder(model: str, folder: Path, origin: str) -> KnownModel:
    config = _read(model, folder / "config.json")
    if config is None:
        raise ModelError(f"model folder {folder} holds no config.json")
    text = config.get("text_config")
    text = text if isinstance(text, dict) else {}
    stored = config.get("dtype") or config.get("torch_dtype")
    stored = stored or (text.get("dtype") or text.get("torch_dtype"))
    return KnownModel(
        name=model,
        origin=origin,
        figures=read_config(config, name=model),
        preprocessor=_preprocessor(model, folder),
        dtype=stored if stored in ("float32", "bfloat16", "float16") else "bfloat16",
    )


def _preprocessor(model: str, folder: Path) -> dict[str, Any] | None:
    try:
        return merged_frame_files(*(_read(model, folder / file) for file in FRAME_FILES))
    except ValueError as error:
        raise ModelError(f"processor_config.json of model {model!r}: {error}") from error


def _read(model: str, path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} of model {model!r} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path.name} of model {model!r} holds no object")
    return content


def _downloaded(model: str) -> Path | None:
    """Return the folder of a hub model's newest snapshot that holds a config.json."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
    snapshots = hub / f"models--{model.replace('/', '--')}" / "snapshots"
    found = [path.parent for path in snapshots.glob("*/config.json")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)
