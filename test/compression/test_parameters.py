"""Refusals name the thing, the value and the remedy."""

from __future__ import annotations

import pytest

from infinipot_ros.compression import POLICIES, PolicyError, make_policy
from infinipot_ros.compression.base import VideoTokens


@pytest.mark.parametrize(
    "name, params, message",
    [
        ("infinipot", {}, "policy 'infinipot' is unknown: choose one of infinipot_v, tar, van, "),
        ("uniform", {"stride": 2}, "policy 'uniform' has no parameter 'stride': it takes none"),
        ("tar", {"tar_ratio": 0.5}, "'tar' has no parameter 'tar_ratio': it takes recent_ratio, "),
        ("van", {"_kernels": (1,)}, "no parameter '_kernels': it takes recent_ratio, pooling"),
        ("infinipot_v", {"tar_ratio": 1.5}, r"tar_ratio=1.5 is refused: choose .* in \[0, 1\]"),
        ("infinipot_v", {"tar_ratio": True}, "tar_ratio=True is refused"),
        ("infinipot_v", {"tar_ratio": float("nan")}, "tar_ratio=nan is refused"),
        ("infinipot_v", {"recent_ratio": 0}, r"recent_ratio=0 is refused: .* in \(0, 1\)"),
        ("infinipot_v", {"recent_ratio": 1.0}, "recent_ratio=1.0 is refused"),
        ("infinipot_v", {"recent_ratio": "0.1"}, "recent_ratio='0.1' is refused"),
        ("tar", {"key_space": "raw"}, "key_space='raw' is refused: .* one of content, rotated"),
        ("tar", {"tar_reference": "next"}, "tar_reference='next' .* one of recent, previous"),
        ("van", {"pooling": 1}, "pooling=1 is refused: choose true or false"),
        ("reservoir", {"seed": -1}, "seed=-1 is refused: choose a whole number, 0 or more"),
        ("recent", {"steps": 0}, "steps=0 is refused: choose a whole number, 1 or more"),
        ("recent", {"steps": 2.0}, "steps=2.0 is refused"),
        ("coreset", {"gap": 10**30}, "gap=10+ is refused: choose a whole number, 1 to 1,000,000"),
        ("blend", {"gap": 2**63}, "gap=.* is refused"),
        ("multi_tar", {"reach": 10**30}, "reach=10+ is refused: .* 0 to 1,000,000"),
        ("novelty", {"buckets": 33}, "buckets=33 is refused: choose a whole number, 0 to 32"),
        ("quota", {"buckets": 70}, "buckets=70 is refused"),
        ("leverage", {"sketch_dim": 10**13}, "sketch_dim=10+ is refused: .* 1 to 4,096"),
        ("leverage", {"ridge": 10**400}, "ridge=10+ is refused: choose a finite number above 0"),
    ],
)
def test_refused_parameters(name, params, message):
    with pytest.raises(PolicyError, match=message):
        make_policy(name, params, 0)


def test_whole_numbers_are_accepted_as_ratios():
    assert make_policy("infinipot_v", {"tar_ratio": 1}, 0).tar_ratio == 1


@pytest.mark.parametrize("name", list(POLICIES))
def test_instances_are_fresh_and_named(name):
    assert make_policy(name, {}, 0) is not make_policy(name, {}, 0)
    assert make_policy(name, {}, 0).name == name
    assert make_policy(name, {}, 0) == make_policy(name, {}, 0)


def test_recent_steps_that_exceed_the_target_are_refused():
    policy = make_policy("infinipot_v", {"recent_ratio": 0.9}, 0)
    with pytest.raises(PolicyError) as refusal:
        policy.check(max_tokens=1024, target_tokens=768, tokens_per_step=64)
    message = str(refusal.value)
    for part in ("recent_ratio=0.9", "14 recent steps of 64", "896 tokens", "768", "1024", "0.75"):
        assert part in message
    remedy = make_policy("infinipot_v", {"recent_ratio": 0.75}, 0)
    remedy.check(max_tokens=1024, target_tokens=768, tokens_per_step=64)


def test_a_step_larger_than_the_target_is_refused():
    with pytest.raises(
        PolicyError, match=r"1 recent steps of 800 .* raise max_tokens or lower the"
    ):
        make_policy("tar", {}, 0).check(max_tokens=1024, target_tokens=768, tokens_per_step=800)


def test_recent_window_larger_than_the_cap_is_refused():
    sizes = {"max_tokens": 1024, "target_tokens": 768}
    with pytest.raises(PolicyError, match=r"1280 tokens, more than .*=1024: choose steps <= 16"):
        make_policy("recent", {"steps": 20}, 0).check(**sizes, tokens_per_step=64)
    with pytest.raises(PolicyError, match="lower the resolution of the frames, or raise"):
        make_policy("recent", {"steps": 1}, 0).check(**sizes, tokens_per_step=2000)


@pytest.mark.parametrize("name", list(POLICIES))
def test_sensible_sizes_are_accepted(name):
    make_policy(name, {}, 0).check(max_tokens=4096, target_tokens=3072, tokens_per_step=64)


def test_unknown_key_space_is_refused(make_store):
    with pytest.raises(PolicyError, match="key space 'raw' is unknown: choose content or rotated"):
        make_store(layers=1, heads=1).view().keys(slice(None), "raw")


def test_kernels_of_another_model_are_refused(make_store):
    policy = make_policy("van", {}, 0)
    for layers in (2, 3):
        store = make_store(layers=layers, heads=1)
        store.append(3, 3, 4)
        if layers == 2:
            policy.select(store.view(), 20)
        else:
            with pytest.raises(PolicyError, match="chosen for 2 layers, these tokens have 3"):
                policy.select(store.view(), 20)


def test_nothing_about_a_question_can_reach_a_policy():
    """Query-agnostic by construction: the view consists of video tokens and sizes only."""
    assert set(VideoTokens.__dataclass_fields__) == {
        "values", "steps", "rows", "cols", "text", "max_tokens", "tokens_per_step", "key_source",
    }  # fmt: skip
