"""Build backend of pyproject.toml: setuptools, plus the ROS build tools where they are needed."""

from __future__ import annotations

from collections.abc import Mapping

import interfaces
import ros
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that stay as they are)

Settings = Mapping[str, "str | list[str] | None"]


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    """Name the build requirements; none of ROS's when the compiled interfaces are at hand."""
    required = list(build_meta.get_requires_for_build_wheel(config_settings))
    return required if interfaces.cached() else required + ros.build_requirements()
