"""The launch file, where `launch` is installed (it is not on PyPI)."""

from __future__ import annotations

import json
import os
import sys

import pytest

from infinipot_ros.resources import share_directory

pytest.importorskip("launch")
pytest.importorskip("launch_ros")


PROGRAM = """#!{python}
import itertools, json, pathlib, sys
files = [p for flag, p in itertools.pairwise(sys.argv) if flag == "--params-file"]
texts = [pathlib.Path(p).read_text() for p in files]
pathlib.Path({out!r}).write_text(json.dumps([sys.argv[1:], "".join(texts)]))
"""


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Return a function that launches a stand-in for the node and tells what it was handed.

    The package is found in a prefix of the test's own.
    """
    from launch import LaunchDescription, LaunchService
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import PythonLaunchDescriptionSource

    index = tmp_path / "share" / "ament_index" / "resource_index" / "packages"
    index.mkdir(parents=True)
    (index / "infinipot_ros").touch()
    (tmp_path / "share" / "infinipot_ros").symlink_to(share_directory())
    programs = tmp_path / "lib" / "infinipot_ros"
    programs.mkdir(parents=True)
    out = tmp_path / "handed.json"
    program = programs / "infinipot_node"
    program.write_text(PROGRAM.format(python=sys.executable, out=str(out)))
    program.chmod(0o755)
    others = os.environ.get("AMENT_PREFIX_PATH", "")
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path}{os.pathsep}{others}".rstrip(os.pathsep))
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path))
    source = PythonLaunchDescriptionSource(
        str(share_directory() / "launch" / "infinipot.launch.py")
    )

    def launch(**arguments):
        service = LaunchService(noninteractive=True)
        included = IncludeLaunchDescription(source, launch_arguments=arguments.items())
        service.include_launch_description(LaunchDescription([included]))
        code = service.run()
        return (code, *json.loads(out.read_text())) if out.exists() else (code, [], "")

    return launch


def test_defaults_start_the_node_with_the_default_parameters(launched):
    code, command, parameters = launched()
    assert code == 0
    assert "max_tokens: 1024" in parameters
    assert "use_sim_time: false" in parameters
    assert command[command.index("--log-level") + 1] == "info"


def test_arguments_override_the_parameter_file(launched):
    _, command, parameters = launched(
        namespace="robot",
        model="/models/mine",
        image_topics="[/front/image, rear]",
        use_sim_time="true",
        autostart="false",
        log_level="debug",
        params_file=str(share_directory() / "config" / "roomworld.yaml"),
    )
    assert "__ns:=/robot" in " ".join(command)
    assert "max_tokens: 576" in parameters
    assert "model: /models/mine" in parameters
    assert "- /front/image\n" in parameters
    assert "- rear\n" in parameters
    assert "use_sim_time: true" in parameters
    assert "autostart: false" in parameters
    assert command[command.index("--log-level") + 1] == "debug"


def test_one_topic_needs_no_brackets(launched):
    _, _, parameters = launched(image_topics="/front/image")
    assert "- /front/image\n" in parameters


@pytest.mark.parametrize(
    "name, value", [("autostart", "maybe"), ("use_sim_time", "1.5"), ("image_topics", "{a: 1}")]
)
def test_a_value_that_makes_no_sense_is_refused_by_name(launched, caplog, name, value):
    code, command, _ = launched(**{name: value})
    assert code == 1
    assert command == []
    assert any(
        name in record.getMessage() and value in record.getMessage() for record in caplog.records
    )
