"""Compile msg/, srv/ and action/ with CMake into a staging prefix, once per set of inputs."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import ros

ROOT = Path(__file__).resolve().parents[2]
_INPUTS = ("CMakeLists.txt", "package.xml", "cmake", "msg", "srv", "action", "scripts/packaging")


def _key() -> str:
    """Return a digest of everything that the compiled interfaces depend on."""
    digest = hashlib.sha256()
    context = [sys.version, platform.machine(), sysconfig.get_platform(), *ros.build_requirements()]
    digest.update("\0".join([*context, *map(str, ros.sourced_prefixes())]).encode())
    for name in _INPUTS:
        path = ROOT / name
        files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
        for file in files:
            if "__pycache__" not in file.parts:
                digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _directory() -> Path:
    return ROOT / "build" / f"interfaces-{_key()}"


def cached() -> bool:
    """Tell whether these interfaces were compiled before, against the ROS wheels."""
    # A sourced ROS can be upgraded in place; there CMake's own dependency tracking decides.
    return not ros.sourced_prefixes() and (_directory() / "complete").exists()


def compile_interfaces() -> Path:
    """Return a prefix with the generated modules, libraries and share/ files.

    Raises:
        RuntimeError: no ROS to compile against.
        subprocess.CalledProcessError: CMake or the compiler failed.
    """
    directory = _directory()
    stage = directory / "stage"
    if cached():
        return stage
    shutil.rmtree(stage, ignore_errors=True)
    python, env = ros.generator_environment()
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = [
        "cmake", "-S", ROOT, "-B", directory / "cmake", *generator,
        "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF",
        f"-DCMAKE_INSTALL_PREFIX={stage}", f"-DPython3_EXECUTABLE={python}",
    ]  # fmt: skip
    build = ["cmake", "--build", directory / "cmake", "--target", "install", "--parallel"]
    for command in (configure, [*build, str(os.cpu_count() or 2)]):
        subprocess.run(command, check=True, env=env)
    (directory / "complete").touch()
    return stage
