"""The part of the pip build that pyproject.toml cannot say: compiled interfaces, ROS dependencies.

`pip install .` runs the CMakeLists.txt that colcon runs and packs its result into the wheel:
generated modules beside the hand-written ones, libraries and share/ files into the environment's
prefix, which is where the ros-* wheels put theirs and where ament and the loader look. colcon does
not use this file.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, find_namespace_packages, setup
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "scripts" / "packaging"))

import interfaces  # noqa: E402
import ros  # noqa: E402

NAME = "infinipot_ros"
GENERATED = ("msg", "srv", "action")


def requirements() -> list[str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class BuildInterfaces(Command):
    """Compile the interfaces and distribute the result over the wheel."""

    description = "generate and compile msg/, srv/ and action/ with rosidl"
    user_options: ClassVar = [("build-lib=", "d", "directory of the built modules")]

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        stage = interfaces.compile_interfaces()
        self._add_modules(stage)
        self._add_data(stage)

    def _add_modules(self, stage: Path) -> None:
        (package,) = stage.glob(f"**/*-packages/{NAME}")
        target = Path(self.build_lib) / NAME
        for kind in GENERATED:
            ignore = shutil.ignore_patterns("*.c", "__pycache__")
            shutil.copytree(package / kind, target / kind, ignore=ignore)
        for library in package.glob("*.so"):
            shutil.copy2(library, target)

    def _add_data(self, stage: Path) -> None:
        files = [(path, path.relative_to(stage)) for path in stage.glob(f"lib/lib{NAME}__*.so")]
        index = stage / "share" / "ament_index" / "resource_index"
        for resource in ("packages", "package_run_dependencies", "rosidl_interfaces"):
            files += [(path, path.relative_to(stage)) for path in (index / resource).iterdir()]
        share = Path("share") / NAME
        for kind in GENERATED:
            files += [(path, share / kind / path.name) for path in (stage / share / kind).iterdir()]
        for folder in ("launch", "config"):
            files += [(path, share / folder / path.name) for path in (ROOT / folder).iterdir()]
        files += [(ROOT / "package.xml", share / "package.xml")]
        by_folder: dict[str, list[str]] = {}
        for path, target in sorted(files):
            relative = path.relative_to(ROOT)  # setuptools refuses absolute paths
            by_folder.setdefault(str(target.parent), []).append(str(relative))
        self.distribution.data_files[:] = list(by_folder.items())


class Build(build):
    """Build from nothing, so that a module deleted since the last build is not packed again."""

    sub_commands: ClassVar = [*build.sub_commands, ("build_interfaces", None)]

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BinaryDistribution(Distribution):
    """The wheel holds shared libraries although setuptools compiles none itself."""

    def has_ext_modules(self) -> bool:
        return True


(ROOT / "build").mkdir(exist_ok=True)  # home of the metadata folder, which else litters the root
setup(
    # To setuptools a folder of model files is a package too.
    packages=find_namespace_packages(include=[NAME, f"{NAME}.*"], exclude=["*.__pycache__"]),
    package_data={NAME: ["**/*"]},
    exclude_package_data={"": ["*.pyc", "*.so"]},
    data_files=[],
    install_requires=requirements() + ros.run_requirements(),
    options={"egg_info": {"egg_base": "build"}},
    distclass=BinaryDistribution,
    cmdclass={"build": Build, "build_interfaces": BuildInterfaces},
)
