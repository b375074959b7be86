"""The package as it is installed: versions, interfaces, files, programs, requirements."""

from __future__ import annotations

import ast
import filecmp
import importlib.metadata
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import infinipot_ros
from infinipot_ros.action import Ask
from infinipot_ros.msg import Evidence, MemoryStatus
from infinipot_ros.resources import share_directory
from infinipot_ros.srv import Query

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(infinipot_ros.__file__).parent
MANIFEST = ET.parse(ROOT / "package.xml").getroot()
IS_CHECKOUT = (ROOT / "infinipot_ros") == PACKAGE

QUESTION = {
    "question": "string",
    "camera": "string",
    "conversation_id": "string",
    "max_new_tokens": "uint32",
    "timeout_s": "float",
}
ANSWER = {
    "success": "boolean",
    "message": "string",
    "answer": "string",
    "confidence": "float",
    "stamp": "builtin_interfaces/Time",
    "evidence": "sequence<infinipot_ros/Evidence>",
    "tokens_retained": "uint32",
    "latency_s": "float",
}
EVIDENCE = {
    "camera": "string",
    "start": "builtin_interfaces/Time",
    "end": "builtin_interfaces/Time",
    "weight": "float",
}
STATUS = {
    "header": "std_msgs/Header",
    "camera": "string",
    "model": "string",
    "policy": "string",
    "frames_received": "uint64",
    "frames_sampled": "uint64",
    "frames_encoded": "uint64",
    "frames_dropped": "uint64",
    "frames_pending": "uint64",
    "blocks": "uint64",
    "compressions": "uint64",
    "tokens_retained": "uint32",
    "tokens_cap": "uint32",
    "bytes_used": "uint64",
    "bytes_cap": "uint64",
    "oldest_stamp": "builtin_interfaces/Time",
    "newest_stamp": "builtin_interfaces/Time",
    "frame_age": "float",
    "encode_ms": "float",
    "compress_ms": "float",
}


def run(*command: str | Path) -> str:
    """Return what a program prints; fail with its output when it fails."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, f"{command} exited {result.returncode}: {result.stderr}"
    return result.stdout


def files_below(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return [p.relative_to(folder) for p in found if p.suffix != ".pyc"]


def test_every_place_names_the_same_version():
    version = infinipot_ros.__version__
    newest = re.search(r"^(\d+\.\d+\.\d+) \(", (ROOT / "CHANGELOG.rst").read_text(), re.MULTILINE)
    assert MANIFEST.findtext("version") == version
    assert newest is not None
    assert newest.group(1) == version
    assert importlib.metadata.version("infinipot_ros") == version


@pytest.mark.parametrize(
    "interface, fields",
    [
        (Query.Request, QUESTION),
        (Query.Response, ANSWER),
        (Ask.Goal, QUESTION),
        (Ask.Result, ANSWER),
        (Ask.Feedback, {"partial": "string"}),
        (Evidence, EVIDENCE),
        (MemoryStatus, STATUS),
    ],
)
def test_interfaces_have_the_documented_fields(interface, fields):
    assert interface.get_fields_and_field_types() == fields


@pytest.mark.parametrize("interface", [Query, Ask, Evidence, MemoryStatus])
def test_type_support_loads(interface):
    # raises when a library of the generated bindings is not found
    type(interface).__import_type_support__()
    assert type(interface)._TYPE_SUPPORT is not None


def test_every_interface_file_is_built():
    listed = re.findall(
        r"^  ((?:msg|srv|action)/\w+\.\w+)", (ROOT / "CMakeLists.txt").read_text(), re.M
    )
    present = [f"{kind}/{p}" for kind in ("msg", "srv", "action") for p in files_below(ROOT / kind)]
    assert sorted(listed) == sorted(present)


@pytest.mark.parametrize("folder", ["launch", "config"])
def test_launch_and_configuration_are_installed(folder):
    assert files_below(ROOT / folder)
    for file in files_below(ROOT / folder):
        assert filecmp.cmp(ROOT / folder / file, share_directory() / folder / file, shallow=False)


@pytest.mark.skipif(IS_CHECKOUT, reason="the checkout comes first on sys.path, nothing to compare")
def test_every_file_of_the_package_is_installed():
    files = [f for f in files_below(ROOT / "infinipot_ros") if "__pycache__" not in f.parts]
    assert len(files) > 40
    stale = [
        str(file)
        for file in files
        if not (PACKAGE / file).is_file()
        or not filecmp.cmp(ROOT / "infinipot_ros" / file, PACKAGE / file, shallow=False)
    ]
    assert stale == []


def test_the_embedded_model_is_in_the_package():
    model = PACKAGE / "models" / "roomworld"
    files = files_below(model)
    assert any(file.suffix == ".safetensors" for file in files)
    assert {"config.json", "tokenizer.json"} <= {str(file) for file in files}
    assert sum((model / file).stat().st_size for file in files) <= 15_000_000


def test_the_command_line_runs():
    # pip puts the program beside Python, colcon into lib/<package>
    places = [Path(sys.prefix) / "bin", share_directory().parents[1] / "lib" / "infinipot_ros"]
    programs = [place / "infinipot" for place in places if (place / "infinipot").is_file()]
    assert programs
    for program in programs:
        text = run(program, "--help")
        assert all(name in text for name in ("node", "ask", "camera", "demo", "bench"))


def test_importing_has_no_side_effects():
    program = (
        "import os, sys; before = dict(os.environ); import infinipot_ros, infinipot_ros.resources;"
        "assert dict(os.environ) == before;"
        "print([m for m in ('rclpy', 'torch', 'numpy') if m in sys.modules])"
    )
    assert run(sys.executable, "-c", program) == "[]\n"


def test_the_core_needs_neither_ros_nor_a_model_library():
    program = (
        "import sys; import infinipot_ros.core;"
        "print([m for m in ('rclpy', 'transformers', 'rosbags', 'cv2') if m in sys.modules])"
    )
    assert run(sys.executable, "-c", program) == "[]\n"


def requirements(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_the_pinned_versions_are_within_the_ranges():
    pins = requirements("constraints.txt")
    for requirement in requirements("requirements.txt"):
        # several where a Python has a pin of its own
        own = [pin for pin in pins if pin.name.lower() == requirement.name.lower()]
        assert own, f"constraints.txt does not pin {requirement.name}"
        for (version,) in (pin.specifier for pin in own):
            assert version.operator == "=="
            assert requirement.specifier.contains(version.version), f"{requirement}: {version}"


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_every_python_has_one_pin_of_each(python):
    pins = requirements("constraints.txt")
    valid = [p for p in pins if not p.marker or p.marker.evaluate({"python_version": python})]
    assert sorted(p.name for p in valid) == sorted({p.name for p in pins})


def ros_imports() -> set[str]:
    """Return the ROS packages that the node's sources and the launch files import."""
    known = {e.text for e in MANIFEST if e.tag in ("depend", "exec_depend")}
    names = set()
    for file in [*(ROOT / "infinipot_ros" / "ros").rglob("*.py"), *(ROOT / "launch").glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    is_ros = re.compile(r".*_(msgs|srvs|interfaces|bridge)$|rclpy|launch.*|ament.*")
    return {name for name in names if is_ros.match(name) or name in known}


def test_package_xml_names_every_ros_package_that_is_imported():
    declared = {e.text for e in MANIFEST if e.tag in ("depend", "exec_depend")}
    assert "rclpy" in ros_imports()
    assert ros_imports() - declared == set()


def test_the_wheel_requires_every_ros_package_that_is_imported():
    text = (ROOT / "scripts" / "packaging" / "ros.py").read_text()
    (wheels,) = re.findall(r"RUN_WHEELS = (\[.*?\])", text, re.DOTALL)
    names = [Requirement(wheel).name for wheel in ast.literal_eval(wheels)]
    required = {name.removeprefix("ros-").replace("-", "_") for name in names}
    # No wheel works or exists; sources do without: ros/conversions.py, `infinipot node`.
    without_wheel = {"cv_bridge", "launch", "launch_ros"}
    assert ros_imports() - required - without_wheel == set()


def test_programs_of_the_repository_are_executable():
    for name in ("demo", "test", "colcon", "ros/infinipot", "ros/infinipot_node"):
        assert os.access(ROOT / "scripts" / name, os.X_OK), name
