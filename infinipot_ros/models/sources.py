"""Where a model's files are, and what the small ones say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infinipot_ros.core.errors import ModelError
from infinipot_ros.core.frame_files import FRAME_FILES, merged_frame_files
from infinipot_ros.core.types import EMBEDDED_MODEL

TEMPLATE_FILES = (
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    "tokenizer_config.json",
)


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model.

    Attributes:
        name: the model's name as the user gave it.
        source: folder or hub id, as the library takes it.
        local: it is a folder; then nothing ever looks at the network.
    """

    name: str
    source: str
    local: bool

    @classmethod
    def of(cls, model: str) -> ModelFiles:
        """Return the files of a model by its name.

        Raises:
            ModelError: the name is empty, or of a folder that is not there or holds no model.
        """
        if not model.strip():
            raise ModelError(
                f"model is empty; give {EMBEDDED_MODEL!r} (embedded), a local folder, or a hub id"
            )
        if model == EMBEDDED_MODEL:
            folder = Path(__file__).parent / EMBEDDED_MODEL
            if not (folder / "config.json").is_file():
                raise ModelError(f"the embedded model's files are missing from {folder}; reinstall")
            return cls(model, str(folder), local=True)
        try:
            path = Path(model).expanduser()
            is_folder = path.is_dir()
            complete = is_folder and (path / "config.json").is_file()
        except (RuntimeError, OSError) as error:  # ~somebody has no home; too long; not allowed
            raise ModelError(f"model {model!r} cannot be found: {error}") from error
        if is_folder:
            if not complete:
                raise ModelError(f"model folder {path} holds no config.json")
            return cls(model, str(path), local=True)
        # "org/name" is a hub id unless such a folder exists; anything else can only be a folder.
        if model.startswith((".", "/", "~")) or model.count("/") != 1:
            raise ModelError(
                f"model {model!r} is neither {EMBEDDED_MODEL!r} (embedded), nor an existing "
                "folder, nor a hub id of the form 'organisation/name'"
            )
        return cls(model, model, local=False)

    def find(self, file: str) -> Path | None:
        """Return where a file is, downloaded if need be; None if the model has none of that name.

        Raises:
            ModelError: it is not here, and the hub cannot be reached.
        """
        if self.local:
            path = Path(self.source) / file
            return path if path.is_file() else None
        from transformers.utils import cached_file

        try:
            found = cached_file(
                # Offline, what was not downloaded counts as what is not there.
                self.source,
                file,
                _raise_exceptions_for_missing_entries=False,
            )
        except OSError as error:
            raise could_not_load(self.name, error) from error
        return None if found is None else Path(found)

    def read_json(self, file: str) -> dict[str, Any] | None:
        """Return a JSON file's content, None if there is no such file.

        Raises:
            ModelError: it is broken.
        """
        text = self._read(file)
        if text is None:
            return None
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:  # numbers and nesting have limits, too
            raise could_not_load(self.name, f"{file} is broken: {error}") from error
        if not isinstance(content, dict):
            raise could_not_load(self.name, f"{file} is broken: it holds no object")
        return content

    def config(self) -> dict[str, Any]:
        """Return ``config.json`` with its ``model_type``.

        Raises:
            ModelError: there is none, or it names no family.
        """
        content = self.read_json("config.json")
        if content is None:
            raise could_not_load(self.name, f"config.json was not found{self._where()}")
        if not isinstance(content.get("model_type"), str):
            raise could_not_load(self.name, "config.json names no model_type")
        return content

    def chat_template(self) -> str:
        """Return the chat template.

        The processor's comes first: that of the tokenizer alone is often the language model's,
        which knows no video.

        Raises:
            ModelError: no file has one.
        """
        if template := self._read(TEMPLATE_FILES[0]):
            return template
        for file in TEMPLATE_FILES[1:]:
            template = _default_template((self.read_json(file) or {}).get("chat_template"))
            if template:
                return template
        raise ModelError(
            f"model {self.name!r} has no chat template: none is in {', '.join(TEMPLATE_FILES)}; "
            "take the instruction-tuned model, or put its template into chat_template.jinja"
        )

    def processor_config(self) -> dict[str, Any]:
        """Return how frames are prepared, one dict whatever files it is spread over.

        See :func:`merged_frame_files`.

        Raises:
            ModelError: there is no such file, or one is broken.
        """
        try:
            merged = merged_frame_files(*(self.read_json(file) for file in FRAME_FILES))
        except ValueError as error:
            raise could_not_load(self.name, error) from error
        if merged is None:
            raise could_not_load(
                self.name, f"it has none of {', '.join(FRAME_FILES)}, which say how frames are made"
            )
        return merged

    def _where(self) -> str:
        """Return where alone was looked for a hub model's files, for messages; else nothing."""
        from huggingface_hub import constants

        offline = not self.local and constants.HF_HUB_OFFLINE
        return " among what was downloaded before, and HF_HUB_OFFLINE is set" if offline else ""

    def _read(self, file: str) -> str | None:
        path = self.find(file)
        if path is None:
            return None
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise could_not_load(self.name, f"{file} is broken: {error}") from error


def could_not_load(model: str, error: Exception | str) -> ModelError:
    """Return the error for a model that is incomplete, broken or out of reach."""
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    return ModelError(
        f"model {model!r} could not be loaded: {reason} (give a complete local folder, or make the "
        "hub reachable; HF_HUB_OFFLINE=1 uses only what was downloaded before)"
    )


def _default_template(value: object) -> str | None:
    """Return the template among what the library's files may hold: one, or several by name."""
    if isinstance(value, list):
        value = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
    if isinstance(value, dict):
        value = value.get("default")
    return value if isinstance(value, str) and value else None
