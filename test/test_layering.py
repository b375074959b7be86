"""Imports point downward: these tests read them and name every arrow upward."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import infinipot_ros

# area -> areas that it may import besides itself and the package's root
BELOW = {
    "compression": set(),
    "core": {"compression"},
    "models": {"core"},
    "planning": {"core"},
    "roomworld": {"core"},
    "replay": {"core", "roomworld"},
    "bench": {"compression", "core", "models", "planning", "replay", "roomworld"},
    "ros": {"compression", "core", "replay", "roomworld"},
    "cli": {"bench", "core", "planning", "replay", "roomworld", "ros"},
    "resources": set(),
}
GENERATED = {"msg", "srv", "action"}
# `StreamEngine.from_pretrained` joins the two on request; as a deferred import it leaves
# `import infinipot_ros.core` free of every model library.
DEFERRED = {("core/engine.py", "models")}

# library -> the only areas that may import it
RESERVED = {
    "rclpy": {"ros"},
    "action_msgs": {"ros"},
    "builtin_interfaces": {"ros"},
    "cv_bridge": {"ros"},
    "diagnostic_msgs": {"ros"},
    "lifecycle_msgs": {"ros"},
    "rcl_interfaces": {"ros"},
    "sensor_msgs": {"ros"},
    "std_msgs": {"ros"},
    "std_srvs": {"ros"},
    "rosbags": {"replay"},
    "transformers": {"models", "roomworld"},
    "tokenizers": {"models", "roomworld"},
}


class Import(NamedTuple):
    """One import statement: what, where, and whether it runs only when a function is called."""

    module: str
    line: int
    deferred: bool


def imports_of(tree: ast.AST, package: str, deferred: bool = False) -> Iterator[Import]:
    """Yield the imports below a node, relative ones made absolute, in functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, deferred) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            # `from infinipot_ros import ros` imports infinipot_ros.ros
            yield from (Import(f"{module}.{a.name}", node.lineno, deferred) for a in node.names)
        elif isinstance(node, ast.Call) and node.args and _name(node.func) in LOADERS:
            match node.args[0]:
                case ast.Constant(value=str(name)):
                    yield Import(name, node.lineno, deferred)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports_of(node, package, deferred or inside)


LOADERS = {"import_module", "__import__"}


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def violations(root: Path) -> list[str]:
    """Return one line for every import below the package folder that the tables do not allow."""
    found = []
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root)
        area = path.parts[0].removesuffix(".py")
        if area in GENERATED:
            continue
        if area == "__init__":
            allowed, area = set(), "the package's root"
        elif area in BELOW:
            allowed = BELOW[area] | {area, "resources"}
        else:
            found.append(f"{path}: area {area!r} has no place in the order")
            continue
        package = ".".join([root.name, *path.parent.parts])
        for module, line, deferred in imports_of(ast.parse(file.read_text()), package):
            top, *rest = module.split(".")
            where = f"{path}:{line}: {area} must not import"
            if top == root.name and rest:
                target = rest[0]
                if target in GENERATED and area != "ros":
                    found.append(f"{where} ROS messages ({module})")
                joined = deferred and (path.as_posix(), target) in DEFERRED
                if target in BELOW and target not in allowed and not joined:
                    found.append(f"{where} {target} ({module})")
            elif top in RESERVED and area not in RESERVED[top]:
                found.append(f"{where} {top}")
    return found


def test_the_package_has_no_import_upward():
    root = Path(infinipot_ros.__file__).parent
    assert len(list(root.rglob("*.py"))) > 20
    assert violations(root) == []


@pytest.mark.parametrize(
    "file, source, message",
    [
        ("core/x.py", "import rclpy", "core/x.py:1: core must not import rclpy"),
        (
            "core/x.py",
            "\nfrom infinipot_ros.ros import node",
            "core/x.py:2: core must not import ros",
        ),
        ("core/x.py", "from infinipot_ros import ros", "must not import ros"),
        ("core/x.py", "from ..ros.node import main", "must not import ros (infinipot_ros.ros.node"),
        ("core/x.py", "from .. import ros", "must not import ros"),
        ("core/deep/x.py", "from ...ros import node", "must not import ros"),
        ("core/x.py", "def f():\n    from transformers import AutoModel", "core/x.py:2"),
        (
            "core/x.py",
            "if True:\n    import infinipot_ros.models.qwen_vl",
            "must not import models",
        ),
        ("core/x.py", 'import_module("infinipot_ros.cli")', "must not import cli"),
        (
            "core/engine.py",
            "from infinipot_ros.models import load_adapter",
            "must not import models",
        ),
        ("compression/x.py", "import infinipot_ros.core.cache", "must not import core"),
        ("models/x.py", "from infinipot_ros.msg import Evidence", "must not import ROS messages"),
        ("replay/x.py", "import sensor_msgs.msg", "must not import sensor_msgs"),
        ("ros/x.py", "import infinipot_ros.cli", "must not import cli"),
        ("resources.py", "import infinipot_ros.core", "must not import core"),
        ("__init__.py", "from infinipot_ros.core import StreamEngine", "root must not import core"),
        ("extra/x.py", "", "area 'extra' has no place in the order"),
    ],
)
def test_an_import_upward_is_found(tmp_path, file, source, message):
    path = tmp_path / "infinipot_ros" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    (line,) = violations(tmp_path / "infinipot_ros")
    assert message in line


@pytest.mark.parametrize(
    "file, source",
    [
        ("core/engine.py", "def f():\n    from infinipot_ros.models import load_adapter"),
        ("core/x.py", "import torch\nfrom infinipot_ros.compression import make_policy"),
        ("core/x.py", "from .cache import SlabCache\nfrom . import errors"),
        ("ros/x.py", "import rclpy\nfrom infinipot_ros.srv import Query"),
        ("models/x.py", "import transformers\nfrom ..core import errors"),
        ("msg/_x.py", "import rclpy"),
    ],
)
def test_an_import_downward_is_allowed(tmp_path, file, source):
    path = tmp_path / "infinipot_ros" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert violations(tmp_path / "infinipot_ros") == []
