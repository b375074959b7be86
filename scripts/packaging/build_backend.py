"""Build backend of pyproject.toml: setuptools, plus the ROS build tools where they are needed."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import interfaces
import ros
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that stay as they are)

Settings = Mapping[str, "str | list[str] | None"]

prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    """Name the build requirements; none of ROS's when the compiled interfaces are at hand."""
    required = list(build_meta.get_requires_for_build_wheel(config_settings))
    return required if interfaces.cached() else required + ros.build_requirements()


get_requires_for_build_editable = get_requires_for_build_wheel


def build_editable(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel with a path to the checkout in place of the hand-written modules.

    setuptools' own editable wheels leave out the generated modules. Here they are installed as
    ever, and the package in the checkout finds them by extending its path.
    """
    with tempfile.TemporaryDirectory() as folder:
        name = build_meta.build_wheel(folder, config_settings, metadata_directory)
        with zipfile.ZipFile(Path(folder) / name) as whole:
            contents = {item: whole.read(item) for item in whole.infolist()}
    kept = {item: data for item, data in contents.items() if not _is_source(item.filename)}
    (record,) = (item for item in kept if item.filename.endswith(".dist-info/RECORD"))
    del kept[record]
    kept[zipfile.ZipInfo("infinipot_ros.pth")] = f"{interfaces.ROOT}\n".encode()
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as editable:
        for item, data in kept.items():
            editable.writestr(item, data)
        editable.writestr(record, _record(kept, record.filename))
    return name


def _is_source(name: str) -> bool:
    return name.startswith("infinipot_ros/") and (interfaces.ROOT / name).is_file()


def _record(contents: Mapping[zipfile.ZipInfo, bytes], own_name: str) -> str:
    """Return the wheel's list of files with digests and sizes (PEP 376, PEP 427)."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for item, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([item.filename, f"sha256={digest}", len(data)])
    rows.writerow([own_name, "", ""])
    return text.getvalue()
