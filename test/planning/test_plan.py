"""The plan as a whole, its command, and the parameter files that it vouches for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infinipot_ros import cli
from infinipot_ros.compression import make_policy
from infinipot_ros.core import ConfigError, EngineConfig
from infinipot_ros.planning import Load, find_model, make_plan
from infinipot_ros.planning.frames import PROMPTS
from infinipot_ros.planning.source import published

CONFIG = Path(__file__).resolve().parents[2] / "config"
FILES = sorted(path.name for path in CONFIG.glob("*_*gb.yaml"))
FREE = 0.10  # of a device, left for what nobody planned
QWEN25 = "Qwen/Qwen2.5-VL-3B-Instruct"


def plan_json(capsys, *arguments):
    code = cli.main(["plan", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "model, token",
    [
        (QWEN25, 36_864),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 57_344),
        *((name, None) for name in ("roomworld", *published())),
    ],
)
def test_every_built_in_model_has_a_plan(capsys, model, token):
    code, plan = plan_json(capsys, "--model", model, "--cap", "4096")
    assert code == 0
    assert token in (None, plan["token_bytes"])
    assert plan["total_bytes"] > plan["weights_bytes"] + plan["cache_bytes"]
    assert plan["full_cache_hour_bytes"] > plan["cache_bytes"]
    assert plan["fits"] is None


def test_the_command_needs_no_torch(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(published()[QWEN25]["config"]))
    program = (
        "import sys; from infinipot_ros import cli;"
        f"code = cli.main(['plan', '--model', {str(tmp_path)!r}, '--device-memory', '16 GB']);"
        "assert not {'torch', 'transformers', 'rclpy'} & set(sys.modules); sys.exit(code)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert re.search(r"a token +36,864 B", run.stdout)
    assert re.search(r"1 camera .* OK, ", run.stdout)


def test_cameras_share_weights_and_passes(capsys):
    _, plan = plan_json(capsys, "--model", QWEN25, "--cameras", "3")
    _, one = plan_json(capsys, "--model", QWEN25)
    more = plan["total_bytes"] - one["total_bytes"]
    assert more == 2 * (one["cache_bytes"] + one["policy_bytes"])


def test_the_largest_cap_fits_and_a_step_more_does_not(capsys):
    arguments = ("--model", QWEN25, "--cameras", "2", "--device-memory", "12GiB")
    _, plan = plan_json(capsys, *arguments)
    largest, step = plan["largest_cap_tokens"], plan["step_tokens"]
    steps = ("--block-steps", str(plan["block_steps"]))
    assert plan_json(capsys, *arguments, *steps, "--cap", str(largest))[1]["fits"] is True
    code, above = plan_json(capsys, *arguments, *steps, "--cap", str(largest + step))
    assert (code, above["fits"]) == (1, False)


def test_a_model_too_large_says_so(capsys):
    arguments = ["plan", "--model", "Qwen/Qwen2.5-VL-7B-Instruct", "--device-memory", "8GiB"]
    assert cli.main(arguments) == 1
    text = capsys.readouterr().out
    assert re.search(r"1 camera +\d+\.\d\d GiB +does not fit in 8.00 GiB: .* too much", text)
    assert re.search(r"largest cap +none", text)


def test_quantization_shrinks_the_layers_of_the_decoder_only(capsys):
    name = "Qwen/Qwen2.5-VL-7B-Instruct"
    sizes = [
        plan_json(capsys, "--model", name, *option)[1]["weights_bytes"]
        for option in ((), ("--quantization", "8bit"), ("--quantization", "4bit"))
    ]
    layers = 28 * (2 * 3584**2 + 2 * 3584 * 512 + 3 * 3584 * 18944)
    assert sizes[0] - sizes[1] == layers
    assert sizes[1] - sizes[2] == pytest.approx(layers * (0.5 - 1 / 16))


def test_the_cap_spans_whole_steps(capsys):
    _, plan = plan_json(
        capsys, "--model", QWEN25, "--cap", "1200", "--pixels", "91728", "--fps", "4"
    )
    assert (plan["span_frames"], plan["span_seconds"]) == (2 * (1200 // 117), 5.0)


def test_positions_on_one_axis_are_noted(capsys):
    _, plan = plan_json(capsys, "--model", "llava-hf/LLaVA-NeXT-Video-7B-hf", "--cap", "8192")
    assert "4,096 positions" in plan["notes"][0]


@pytest.mark.parametrize(
    "options, message",
    [
        (("--device-memory", "plenty"), "'plenty' is no size"),
        (("--cap", "100"), "smaller than two blocks"),
        (("--cap", "1"), "max_tokens is 1"),
        (("--cameras", "0"), "cameras is 0"),
        (("--fps", "0"), "fps is 0.0"),
        (("--pixels", "-4"), "pixels is -4"),
        (("--model", "not/there"), "config.json"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(capsys, options, message):
    assert cli.main(["plan", "--model", QWEN25, *options]) == 2
    assert message in capsys.readouterr().err


def test_a_load_of_unknown_formats_is_refused():
    with pytest.raises(ConfigError, match="dtype is 'int3'; it must be one of 'float32'"):
        Load(dtype="int3")


# ---- the parameter files


def parameters(name):
    return yaml.safe_load((CONFIG / name).read_text())["/**"]["ros__parameters"]


def test_there_is_a_file_for_every_model_and_device_that_go_together():
    models = {re.sub(r"_\d+gb\.yaml", "", name) for name in FILES}
    assert len(models) == 11
    missing = {f"{m}_{gb}gb.yaml" for m in models for gb in (8, 16, 24)} - set(FILES)
    assert missing == {
        f"{m}_8gb.yaml" for m in ("qwen2_5_vl_7b", "qwen3_vl_8b", "llava_onevision_7b")
    }
    for name in missing:
        # Not even its smallest weights leave a tenth of the device.
        values = parameters(name.replace("_8gb", "_24gb"))
        load = Load(cap=4096, block_steps=1, quantization="4bit", device_memory=8 * 10**9)
        assert make_plan(find_model(values["model"]), load).total > (1 - FREE) * 8e9


@pytest.mark.parametrize("name", FILES)
def test_a_file_sets_parameters_that_the_node_takes(name):
    pytest.importorskip("rclpy")
    from infinipot_ros.ros.parameters import BY_NAME, PARAMETERS
    from infinipot_ros.ros.settings import Settings

    values = {row.name: row.default for row in PARAMETERS} | {"cameras": []}
    for key, value in parameters(name).items():
        group = value if isinstance(value, dict) else {"": value}
        for inner, each in group.items():
            parameter = f"{key}.{inner}".rstrip(".")
            BY_NAME[parameter].check(each)
            values[parameter] = each
    values["memory.policy_params"] = []
    assert Settings.from_values(values).engine.max_tokens == values["memory.max_tokens"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_fits_its_device_and_an_engine(name):
    values = parameters(name)
    memory, sampling, question = (values[key] for key in ("memory", "sampling", "question"))
    engine = EngineConfig(
        max_tokens=memory["max_tokens"],
        policy=memory["policy"],
        retain_ratio=memory["retain_ratio"],
        fps=sampling["fps"],
        block_steps=sampling["block_steps"],
        max_pixels=sampling.get("max_pixels", 0),
        max_question_tokens=question["max_tokens"],
        max_new_tokens=question["max_new_tokens"],
    )
    files = find_model(values["model"])
    asked = engine.max_question_tokens + PROMPTS[files.figures.family].template
    device = int(name.rpartition("_")[2].removesuffix("gb.yaml")) * 10**9
    load = Load(
        cap=engine.max_tokens,
        fps=engine.fps,
        pixels=engine.max_pixels,
        block_steps=engine.block_steps,
        retain_ratio=engine.retain_ratio,
        quantization=values.get("quantization", ""),
        device_memory=device,
        question_tokens=asked,
        reserve_tokens=asked + engine.max_new_tokens,
    )
    plan = make_plan(files, load)
    assert plan.total <= (1 - FREE) * device
    assert plan.notes == ()
    tokens = plan.step.tokens
    engine.check_block(tokens)
    make_policy(engine.policy, engine.policy_params, engine.seed).check(
        max_tokens=engine.max_tokens, target_tokens=engine.target_tokens, tokens_per_step=tokens
    )
    # Two blocks more, as the engine wants to see below the model's positions.
    needed = engine.max_tokens + 2 * (engine.block_steps * tokens + load.reserve_tokens)
    assert needed <= files.figures.text.positions
    text = (CONFIG / name).read_text()
    assert f"{plan.total / 1e9:.1f} GB of it" in text
