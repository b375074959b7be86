"""The table of parameters: ranges, refusals, and the YAML files that must agree with it."""

from __future__ import annotations

import math

import pytest
import yaml

from infinipot_ros.core import ConfigError, EngineConfig
from infinipot_ros.resources import share_directory
from infinipot_ros.ros.parameters import BY_NAME, PARAMETERS, refusal
from infinipot_ros.ros.settings import (
    Settings,
    in_parameter_names,
    name_cameras,
    parse_policy_params,
)

CONFIG = share_directory() / "config"


def flatten(tree, prefix=""):
    """Return the parameters of a YAML tree by their dotted names."""
    out = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        out.update(flatten(value, f"{name}.") if isinstance(value, dict) else {name: value})
    return out


def load(name):
    tree = yaml.safe_load((CONFIG / name).read_text())
    assert list(tree) == ["/**"], "a file keyed by a node's name does not apply after a rename"
    return flatten(tree["/**"]["ros__parameters"])


def test_the_default_file_names_every_parameter_with_its_default():
    assert load("infinipot.yaml") == {row.name: row.default for row in PARAMETERS}


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIG.glob("*.yaml")))
def test_every_file_sets_known_parameters_to_allowed_values(name):
    values = load(name)
    for parameter, value in values.items():
        BY_NAME[parameter].check(value)
    defaults = {row.name: row.default for row in PARAMETERS}
    merged = defaults | values
    merged = {
        key: [v for v in value if v] if isinstance(value, list) else value
        for key, value in merged.items()
    }
    assert Settings.from_values(merged).engine.max_tokens == merged["memory.max_tokens"]


@pytest.mark.parametrize("row", PARAMETERS, ids=lambda row: row.name)
def test_every_row_is_described_and_accepts_its_default(row):
    row.check(row.default)
    descriptor = row.descriptor()
    assert len(descriptor.description) > 10
    assert descriptor.name == row.name
    if isinstance(row.default, (int, float)) and not isinstance(row.default, bool):
        ranges = list(descriptor.integer_range) + list(descriptor.floating_point_range)
        assert [(r.from_value, r.to_value) for r in ranges] == [(row.low, row.high)]


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("memory.max_tokens", 1, ["1", "[2, 10000000]", "tokens"]),
        ("memory.max_tokens", 12.5, ["12.5", "an integer"]),
        ("memory.max_tokens", True, ["True", "an integer"]),
        ("memory.retain_ratio", 0.0, ["0.0", "(0.0, 1.0)"]),
        ("memory.retain_ratio", math.nan, ["nan", "a number"]),
        ("sampling.fps", "fast", ["'fast'", "a number"]),
        ("dtype", "int8", ["'int8'", "'bfloat16'"]),
        ("image_topics", "image", ["'image'", "a list of strings"]),
        ("autostart", 1, ["1", "true or false"]),
    ],
)
def test_a_wrong_value_is_refused_by_name_value_and_range(name, value, words):
    with pytest.raises(ConfigError) as caught:
        BY_NAME[name].check(value)
    assert all(word in str(caught.value) for word in [name, *words]), caught.value


def test_only_live_parameters_change_while_configured():
    for row in PARAMETERS:
        reason = refusal(row.name, row.default, configured=True)
        assert (reason is None) == row.live
        assert refusal(row.name, row.default, configured=False) is None
    assert refusal("somebody.elses", 3, configured=True) is None


def test_defaults_agree_with_the_engines():
    values = {row.name: row.default for row in PARAMETERS}
    values = {k: [i for i in v if i] if isinstance(v, list) else v for k, v in values.items()}
    ours, theirs = Settings.from_values(values).engine, EngineConfig()
    differing = {
        name
        for name in (
            "policy",
            "retain_ratio",
            "block_steps",
            "fps",
            "positions",
            "seed",
            "max_question_tokens",
            "max_new_tokens",
            "system_prompt",
            "max_pixels",
        )
        if getattr(ours, name) != getattr(theirs, name)
    }
    assert not differing


@pytest.mark.parametrize(
    "topics, names, expected",
    [
        (["image"], [], {"camera": "image"}),
        (["/camera/color/image_raw"], [], {"camera": "/camera/color/image_raw"}),
        (
            ["front/image_raw", "/rear/image_rect_color"],
            [],
            {"front": "front/image_raw", "rear": "/rear/image_rect_color"},
        ),
        (
            ["a/left/image", "b/left/image"],
            [],
            {"a_left_image": "a/left/image", "b_left_image": "b/left/image"},
        ),
        (["x", "y"], ["head", "hand"], {"head": "x", "hand": "y"}),
    ],
)
def test_cameras_get_telling_names(topics, names, expected):
    assert name_cameras(topics, names) == expected
    assert list(name_cameras(topics, names)) == list(expected)


@pytest.mark.parametrize(
    "topics, names, word",
    [
        ([], [], "empty"),
        (["no topic!"], [], "'no topic!'"),
        (["a", "a"], [], "twice"),
        (["a"], ["x", "y"], "2 names"),
        (["a", "b"], ["x", "x"], "twice"),
    ],
)
def test_cameras_that_cannot_be_named_are_refused(topics, names, word):
    with pytest.raises(ConfigError, match=word):
        name_cameras(topics, names)


def test_policy_parameters_are_literals_or_words():
    parsed = parse_policy_params(["tar_ratio=0.25", "key_space = rotated", "kernels=(3, 1)"])
    assert parsed == {"tar_ratio": 0.25, "key_space": "rotated", "kernels": (3, 1)}
    with pytest.raises(ConfigError, match="name=value"):
        parse_policy_params(["0.25"])


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "max_tokens is 40, raise max_tokens or lower block_steps",
            "memory.max_tokens is 40, raise memory.max_tokens or lower sampling.block_steps",
        ),
        ("needs 300 positions at an fps of 2", "needs 300 positions at an fps of 2"),
        ("fps is 0", "sampling.fps is 0"),
        ("(max_pending_questions); max_new_tokens", "(queue.questions); max_new_tokens"),
        ("memory.max_tokens stays", "memory.max_tokens stays"),
    ],
)
def test_messages_of_the_core_name_the_parameters(text, expected):
    assert in_parameter_names(text) == expected


@pytest.mark.parametrize(
    "topics", [["image", "/image"], ["/x/b/c", "/x_b/c"], ["~/image", "/image"]]
)
def test_topics_that_would_share_a_camera_name_are_refused(topics):
    with pytest.raises(ConfigError, match="'cameras'"):
        name_cameras(topics, [])
    assert list(name_cameras(topics, ["left", "right"])) == ["left", "right"]
