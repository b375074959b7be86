"""The plan as a whole, its command, and the parameter files that it vouches for."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infinipot_ros import cli
from infinipot_ros.compression import make_policy
from infinipot_ros.core import ConfigError
from infinipot_ros.planning import Load, find_model, make_plan
from infinipot_ros.planning.config_file import FAMILIES
from infinipot_ros.planning.positions import check_positions
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


@pytest.mark.parametrize(
    "model, options, span",
    [
        ("llava-hf/LLaVA-NeXT-Video-7B-hf", ("--cap", "2560"), "2,560"),
        ("HuggingFaceTB/SmolVLM2-2.2B-Instruct", ("--cap", "6144"), "6,144"),
        # 1,024 steps of one patch, 15 tokens of text, and the places of the 191 other patches.
        ("Qwen/Qwen3-VL-4B-Instruct", ("--cap", "16384", "--pixels", "196608"), "211,968"),
        # Steps a hundred seconds apart, two positions a second, a token of each.
        (QWEN25, ("--cap", "4096", "--fps", "0.02"), "819,200"),
        ("Qwen/Qwen2-VL-2B-Instruct", ("--cap", "30000"), "30,000"),
    ],
)
def test_a_cap_that_an_engine_would_warn_of_is_noted(capsys, model, options, span):
    _, plan = plan_json(capsys, "--model", model, *options)
    assert f"may span {span} positions" in plan["notes"][0]
    _, plan = plan_json(capsys, "--model", model, "--cap", "2048", "--block-steps", "1")
    assert plan["notes"] == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("fps", [0.3, 2.0])
def test_positions_are_counted_as_the_adapter_counts_them(tmp_path, caplog, family, fps):
    from infinipot_ros.core.position_limit import check_position_limit
    from infinipot_ros.models import load_adapter
    from infinipot_ros.models.scaled import write_scaled
    from infinipot_ros.planning.frames import step_shape

    adapter = load_adapter(str(write_scaled(family, tmp_path)), device="cpu")
    figures = find_model(str(tmp_path)).figures
    step = step_shape(figures, None, text=adapter.max_step_text())
    said = set()
    caplog.set_level("INFO")
    for cap in (4 * step.tokens, figures.text.positions, 8 * figures.text.positions):
        config = Load(cap=max(cap, 16), fps=fps, block_steps=1).engine_config()
        caplog.clear()
        check_position_limit(
            config,
            adapter.numbering(fps),
            limit=adapter.position_limit,
            fixed=None,
            around=(5, 60),
            patches=step.video_tokens,
            text=step.text,
        )
        note = check_positions(config, figures, step, around=(5, 60))
        numbers = [[int(n) for n in re.findall(r"\d+", text.replace(",", ""))] for text in
                   (note, *(record.getMessage() for record in caplog.records))]  # fmt: skip
        if note:
            assert numbers[0] == numbers[1][1:]  # the engine names its max_tokens first
        assert bool(note) == bool(caplog.records)
        said.add(bool(note))
    assert said == {False, True}


def test_the_dialogue_takes_room(capsys):
    _, plan = plan_json(capsys, "--model", QWEN25)
    _, without = plan_json(capsys, "--model", QWEN25, "--max-dialogue-tokens", "0")
    assert plan["cache_bytes"] - without["cache_bytes"] == 256 * plan["token_bytes"]
    assert plan["question_peak_bytes"] > without["question_peak_bytes"]
    assert (plan["max_dialogue_tokens"], without["max_dialogue_tokens"]) == (256, 0)


def test_a_limit_that_an_engine_refuses_is_refused(capsys):
    arguments = ["plan", "--model", "llava-hf/LLaVA-NeXT-Video-7B-hf", "--cap", "2048"]
    assert cli.main([*arguments, "--max-dialogue-tokens", "3000"]) == 2
    assert re.search(r"made for 4,096 positions: .* at least \d+ pos", capsys.readouterr().err)


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
    device = int(name.rpartition("_")[2].removesuffix("gb.yaml")) * 10**9
    load = Load(
        cap=memory["max_tokens"],
        fps=sampling["fps"],
        pixels=sampling.get("max_pixels", 0),
        block_steps=sampling["block_steps"],
        retain_ratio=memory["retain_ratio"],
        quantization=values.get("quantization", ""),
        device_memory=device,
        **{
            f"max_{key}_tokens": question[parameter]
            for key, parameter in (
                ("question", "max_tokens"),
                ("new", "max_new_tokens"),
                ("dialogue", "max_dialogue_tokens"),
            )
            if parameter in question
        },
    )
    files, engine = find_model(values["model"]), load.engine_config()
    plan = make_plan(files, load)
    assert plan.total <= (1 - FREE) * device
    assert plan.notes == ()  # nor is anything squeezed together
    make_policy(memory["policy"], {}, engine.seed).check(
        max_tokens=engine.max_tokens,
        target_tokens=engine.target_tokens,
        tokens_per_step=plan.step.tokens,
    )
    text = (CONFIG / name).read_text()
    assert f"{plan.total / 1e9:.1f} GB of it" in text
    assert f"The cap holds {plan.seconds:.0f} seconds" in text


def test_defaults_are_those_of_the_node():
    """The node takes what a file does not set from its parameters; reading them needs no ROS."""
    source = Path(importlib.util.find_spec("infinipot_ros").origin).parent / "ros/parameters.py"
    node = {}
    for call in ast.walk(ast.parse(source.read_text())):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Parameter":
            name, default = call.args[:2]
            if isinstance(default, ast.Constant):
                node[name.value] = default.value
    load = Load()
    assert node["question.max_dialogue_tokens"] == load.max_dialogue_tokens == 256
    assert node["question.max_tokens"] == load.max_question_tokens
    assert node["question.max_new_tokens"] == load.max_new_tokens
    assert node["memory.retain_ratio"] == load.retain_ratio
    assert node["sampling.block_steps"] == load.block_steps
