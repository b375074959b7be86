"""`infinipot plan` with nonsense: a line that says what is wrong, and never a traceback."""

from __future__ import annotations

import copy
import json

import pytest

from infinipot_ros import cli
from infinipot_ros.core.errors import InfinipotError
from infinipot_ros.planning import Load, find_model, make_plan
from infinipot_ros.planning.report import as_dict
from infinipot_ros.planning.source import published

NAMES = {entry["config"]["model_type"]: name for name, entry in published().items()}
VALUES = [None, True, 0, -1, 10**30, float("inf"), float("nan"), "x", [], {"a": 1}]


def _plan(folder, *options):
    return cli.main(["plan", "--model", str(folder), "--json", *options])


def _paths(content, at=()):
    for key, value in content.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from _paths(value, (*at, key))


@pytest.mark.parametrize("family", NAMES)
def test_any_value_of_a_config(tmp_path, family):
    base = published()[NAMES[family]]["config"]
    unsaid = ("mlp_ratio", "spatial_merge_size", "temporal_patch_size", "deepstack_visual_indexes")
    paths = {
        *_paths(base),
        *((name,) for name in ("dtype", "scale_factor", "downsample_ratio", "spatial_pool_stride")),
        *(("vision_config", name) for name in unsaid),
    }
    for path in sorted(paths):
        for value in VALUES:
            config = copy.deepcopy(base)
            inner = config
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            (tmp_path / "config.json").write_text(json.dumps(config))
            try:
                figures = as_dict(make_plan(find_model(str(tmp_path)), Load(block_steps=1)))
            except InfinipotError:
                continue
            sizes = [v for k, v in figures.items() if k.endswith(("_bytes", "_tokens")) and v]
            assert min(sizes) > 0, (path, value)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("value", VALUES)
def test_any_value_of_a_preprocessor(tmp_path, capsys, family, value):
    (tmp_path / "config.json").write_text(json.dumps(published()[NAMES[family]]["config"]))
    for content in (
        {"size": value},
        {"size": {"height": value, "width": 448}},
        {"size": {"height": 448}},
        {"size": {"longest_edge": value}},
        {"max_pixels": value},
    ):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
        code = _plan(tmp_path)
        assert code in (0, 1) or capsys.readouterr().err.startswith("infinipot: ")


@pytest.mark.parametrize(
    "content", [b"[]", b"5", b"\xff\xfe{", b"", b"[" * 100_000, b'{"a": ' + b"1" * 5000 + b"}"]
)
def test_a_config_that_is_none(tmp_path, capsys, content):
    (tmp_path / "config.json").write_bytes(content)
    assert _plan(tmp_path) == 2
    assert "config.json of model" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        (("--cap", "9" * 400), "cap is 999"),
        (("--cameras", "1000000000"), "cameras is 1000000000; it must lie in [1, 1000]"),
        (("--pixels", "9" * 320), "pixels is 999"),
        (("--pixels", "100"), "pixels is 100; a token takes 28x28 pixels"),
        (("--device-memory", "9" * 400 + "GiB"), "is no size"),
        (("--device-memory", "8"), "has no unit; write 8GiB, 8GB or 8MB"),
        (("--device-memory", "0.0000001kB"), "is no size"),
        (("--fps", "nan"), "fps is nan"),
        (("--block-steps", "0"), "block_steps is 0"),
        (("--model", "x" * 5000), "File name too long"),
        (("--model", "~nobody/model"), "nobody"),
        (("--model", ""), "model '' is not here"),
        (("--model", __file__), "is not here"),
    ],
)
def test_options_that_cannot_be(capsys, options, message):
    assert cli.main(["plan", "--model", NAMES["qwen2_5_vl"], *options]) == 2
    assert message in capsys.readouterr().err
