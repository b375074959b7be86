"""Launch the node.

ros2 launch infinipot_ros infinipot.launch.py image_topics:="[/front/image_raw, /rear/image_raw]"

Arguments that are left empty keep what the parameter file says.
"""

from __future__ import annotations

import os
from typing import Any

import yaml
from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

SHARE = get_package_share_directory("infinipot_ros")

ARGUMENTS = (
    ("namespace", "", "namespace of the node"),
    ("params_file", os.path.join(SHARE, "config", "infinipot.yaml"), "YAML file with parameters"),
    ("model", "", "model: 'roomworld', a local folder or a hub id (empty: as in params_file)"),
    (
        "image_topics",
        "",
        "image topics, '[a, b]', or one topic (empty: as in params_file)",
    ),
    ("use_sim_time", "false", "take the time from /clock"),
    ("autostart", "true", "configure and activate the node at start"),
    ("log_level", "info", "debug, info, warn, error or fatal"),
    ("respawn", "false", "start the node again when it ends"),
)


def generate_launch_description() -> LaunchDescription:
    """Return the launch description."""
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, default, text in ARGUMENTS
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=_node)])


def _node(context: LaunchContext) -> list[Node]:
    value = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    overrides: dict[str, Any] = {
        "use_sim_time": _boolean("use_sim_time", value["use_sim_time"]),
        "autostart": _boolean("autostart", value["autostart"]),
    }
    if value["model"]:
        overrides["model"] = value["model"]
    if value["image_topics"]:
        overrides["image_topics"] = _topics(value["image_topics"])
    return [
        Node(
            package="infinipot_ros",
            executable="infinipot_node",
            namespace=value["namespace"],
            parameters=[value["params_file"], overrides],
            arguments=["--ros-args", "--log-level", value["log_level"]],
            output="screen",
            emulate_tty=True,
            respawn=_boolean("respawn", value["respawn"]),
            # A wrong parameter makes the node end at once: do not restart in a tight loop.
            respawn_delay=5.0,
        )
    ]


def _boolean(name: str, text: str) -> bool:
    if text.lower() in ("true", "1"):
        return True
    if text.lower() in ("false", "0"):
        return False
    raise ValueError(f"launch argument {name} is {text!r}; it must be true or false")


def _topics(text: str) -> list[str]:
    parsed = yaml.safe_load(text)
    topics = [parsed] if isinstance(parsed, str) else parsed
    if not isinstance(topics, list) or not all(isinstance(item, str) for item in topics):
        raise ValueError(f"launch argument image_topics is {text!r}; write [a, b] or one topic")
    return topics
