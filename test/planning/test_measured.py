"""The plan against what a running engine allocates, for every family."""

from __future__ import annotations

import pytest

from infinipot_ros.core import EngineConfig
from infinipot_ros.models.families import FAMILIES

WITHIN = 0.10


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    from infinipot_ros.models.scaled import write_scaled

    made = {"roomworld": "roomworld"}

    def folder(family):
        if family not in made:
            made[family] = str(write_scaled(family, tmp_path_factory.mktemp(family)))
        return made[family]

    return folder


def check(model, **options):
    from infinipot_ros.bench.plan_check import check_plan

    config = EngineConfig(
        max_tokens=options.pop("cap"),
        block_steps=options.pop("block_steps"),
        max_question_tokens=96,
    )
    result = check_plan(model, config, **options)
    errors = result.errors()
    # These two are arithmetic: no byte may be off.
    assert errors["weights"] == errors["cache"] == 0.0
    wrong = {name: error for name, error in errors.items() if abs(error) > WITHIN}
    assert wrong == {}, f"{result}"


@pytest.mark.parametrize("cap, block_steps", [(480, 2), (1200, 6)])
@pytest.mark.parametrize("family", ["roomworld", *FAMILIES])
def test_the_plan_is_within_a_tenth(folder_of, family, cap, block_steps):
    check(folder_of(family), cap=cap, block_steps=block_steps)


@pytest.mark.parametrize("family", ["roomworld", "qwen3_vl", "llava_onevision"])
def test_the_plan_is_within_a_tenth_in_half_precision(folder_of, family):
    check(folder_of(family), cap=720, block_steps=4, dtype="bfloat16")


@pytest.mark.parametrize("family", ["qwen2_5_vl", "smolvlm"])
def test_the_plan_is_within_a_tenth_with_eager_attention(folder_of, family):
    check(folder_of(family), cap=600, block_steps=4, attention="eager")
