"""Caps, blocks, moments and variants; provenance taken away; what tickets stand for."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
import torch

from infinipot_ros.bench.memory.encoded import encode_stream, reading_tickets, ticket
from infinipot_ros.bench.memory.plan import WHOLE, make_cap, moments, passes, refusal
from infinipot_ros.bench.memory.reshaped import Reshaped, reshape_provenance
from infinipot_ros.bench.memory.streams import (
    NOW,
    StreamSpec,
    images,
    moment_ns,
    now_questions,
    regimes,
    tour_questions,
)
from infinipot_ros.bench.memory.variants import (
    ABLATIONS,
    Variant,
    ablation_variants,
    bounded_policies,
    policy_variants,
)
from infinipot_ros.compression import VideoTokens, make_policy
from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.errors import ConfigError
from infinipot_ros.models import load_adapter

STREAM = StreamSpec("watch", 0, 0, tour_steps=128, quiet_steps=384)
POLICIES = policy_variants(("infinipot_v", "recent"))


def caps(*shares, variants=POLICIES):
    return [make_cap(Fraction(share), 512, 9, variants) for share in shares]


def test_caps_hold_a_share_of_the_stream_in_blocks_that_fit():
    found = [(c.label, c.steps, c.max_tokens, c.block_steps) for c in caps("1/4", "1/32", "1/64")]
    assert found == [("1/4", 128, 1152, 4), ("1/32", 16, 144, 4), ("1/64", 8, 72, 2)]
    (smallest,) = caps("1/128")
    assert (smallest.steps, smallest.block_steps) == (4, 1)


def test_blocks_suit_every_variant_of_a_table():
    (cap,) = caps("1/16", variants=ablation_variants())
    assert cap.block_steps == 2  # 0.9 of 288 tokens leaves room for three steps


def test_a_cap_of_next_to_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"1/256 of 512 steps holds 2; .* choose 1/128 or more"):
        caps("1/256")


def test_questions_come_at_once_and_after_multiples_of_the_cap_while_the_stream_lasts():
    steps = {cap.label: [m.step for m in moments(cap, STREAM)] for cap in caps("1/4", "1/32")}
    assert steps == {"1/4": [128, 256], "1/32": [128, 144, 192, 384]}


def test_a_prelude_moves_the_moments():
    spec = StreamSpec("watch", 0, 0, tour_steps=128, quiet_steps=384, prelude_steps=100)
    (cap,) = caps("1/4")
    assert [m.step for m in moments(cap, spec)] == [228, 356]
    assert moment_ns(spec, 228) == moment_ns(STREAM, 128) == 127_500_000_000


def test_one_pass_of_full_serves_every_cap():
    variants = policy_variants(("full", "recent"))
    found = passes(STREAM, caps("1/4", "1/16"), variants, left_out={("recent", "1/16")})
    assert [(one.variant.name, one.max_tokens) for one in found] == [
        ("full", 1152), ("recent", 1152),
    ]  # fmt: skip
    assert [(m.step, m.cells) for m in found[0].moments] == [
        (128, (("1/4", 0), ("1/16", 0))),
        (160, (("1/16", 1),)),
        (256, (("1/4", 1), ("1/16", 4))),
    ]


def test_a_policy_that_cannot_work_says_why():
    (cap,) = caps("1/128")
    wide = Variant("wide", "recent", {"steps": 5})
    assert "wide cannot work at cap 1/128: steps=5" in refusal(wide, cap, 9)
    assert refusal(POLICIES[1], cap, 9) is None


def test_the_whole_run_works_for_every_policy_there_is():
    variants = policy_variants(bounded_policies())
    caps = [make_cap(share, WHOLE.steps, 9, variants) for share in WHOLE.caps]
    assert [cap.block_steps for cap in caps] == [4, 4, 4, 4, 2]
    refused = [refusal(variant, cap, 9) for cap in caps for variant in variants]
    assert set(refused) == {None}


def test_ablations_change_one_thing_each_and_run_once():
    names = [variant.name for variant in ablation_variants()]
    assert len(names) == len(set(names))
    assert names[0] == "infinipot_v"
    for variant in ablation_variants():
        variant.config(max_tokens=288, block_steps=1, seed=0)
        make_policy(variant.policy, variant.params, 0)
    for group in ABLATIONS.values():
        assert any(variant.name == "infinipot_v" for variant in group)


@pytest.mark.parametrize("regime", regimes())
def test_answers_about_the_tour_stay_true_and_questions_repeat(regime):
    spec = StreamSpec(regime, 3, 1, tour_steps=32, quiet_steps=96)
    world = spec.world()
    end = moment_ns(spec, 32)
    assert world.sightings(end) == world.sightings(moment_ns(spec, spec.steps))
    asked = tour_questions(spec, world, 2)
    assert asked == tour_questions(spec, spec.world(), 2)
    assert NOW not in {question.kind for question in asked}
    assert len(asked) == len(set(asked)) > 8
    longer = StreamSpec(regime, 3, 1, tour_steps=32, quiet_steps=96, prelude_steps=50)
    assert tour_questions(longer, longer.world(), 2) == asked
    assert now_questions(longer, world, 114, 2) == now_questions(spec, world, 64, 2)


def test_a_long_stream_ends_with_the_short_one():
    short = StreamSpec("watch", 0, 0, tour_steps=16, quiet_steps=4)
    long = StreamSpec("watch", 0, 0, tour_steps=16, quiet_steps=4, prelude_steps=3)
    ours, theirs = (list(images(spec, spec.world())) for spec in (long, short))
    assert len(theirs) == 40
    assert len(ours) == 46
    assert all(np.array_equal(a, b) for a, b in zip(ours[6:], theirs, strict=True))


def test_every_stream_has_a_world_of_its_own():
    specs = [
        StreamSpec(regime, number, seed, 16, 4)
        for regime in regimes()
        for number in (0, 1)
        for seed in (0, 1)
    ]
    assert len({spec.world_seed for spec in specs}) == len(specs)


# -- tickets ---------------------------------------------------------------------------------


def test_engines_that_observe_tickets_see_what_engines_that_observe_frames_see():
    adapter = load_adapter("roomworld", device="cpu")
    spec = StreamSpec("patrol", 0, 0, tour_steps=16, quiet_steps=7)
    frames = list(images(spec, spec.world()))
    encoded = encode_stream(adapter, frames)
    assert encoded.embeddings.shape[:2] == (23, encoded.tokens_per_step)
    config = EngineConfig(max_tokens=8 * encoded.tokens_per_step, block_steps=2, max_new_tokens=4)
    plain, reader = (StreamEngine(a, config) for a in (adapter, reading_tickets(adapter, encoded)))
    stamps = list(range(len(frames)))
    plain.observe(frames, stamps)
    reader.observe(encoded.tickets(0, 23), stamps)
    assert reader.stats().compressions == plain.stats().compressions > 5
    assert torch.equal(reader.cache.steps, plain.cache.steps)
    torch.testing.assert_close(reader.cache.video_keys, plain.cache.video_keys)
    for question in tour_questions(spec, spec.world(), 1):
        assert reader.ask(question.text).text == plain.ask(question.text).text
    # The adapter that was copied still takes frames.
    StreamEngine(adapter, config).observe(frames[:4], stamps[:4])


def test_tickets_are_whole_steps_and_streams_too():
    adapter = load_adapter("roomworld", device="cpu")
    spec = StreamSpec("patrol", 0, 0, tour_steps=16, quiet_steps=0)
    frames = list(islice(images(spec, spec.world()), 5))
    with pytest.raises(ValueError, match="last step has 1 frames"):
        encode_stream(adapter, frames)
    encoded = encode_stream(adapter, frames[:4])
    preprocess = reading_tickets(adapter, encoded).preprocessor(0, 0)
    assert preprocess.max_tokens_per_step() == encoded.tokens_per_step
    with pytest.raises(ValueError, match=r"tickets \[1, 2\] are not whole steps"):
        preprocess([ticket(1), ticket(2)])
    numbers, grid = preprocess([ticket(70_000), ticket(70_001)])
    assert (numbers.tolist(), grid) == ([35_000.0], (1, encoded.rows, encoded.cols))


# -- provenance taken away -------------------------------------------------------------------


def tokens(steps, rows, cols, per_step=6):
    """Tokens [1, 2, N] of which the two heads hold the same."""
    planes = [torch.tensor(p).expand(1, 2, -1).contiguous() for p in (steps, rows, cols)]
    noise = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(1, 2, len(steps), 4, generator=noise) for _ in range(2))
    return VideoTokens(values, *planes, 12, per_step, lambda layers, _: keys[layers])


def whole_frames(n):
    place = torch.arange(6 * n)
    return tokens((place // 6).tolist(), (place % 6 // 3).tolist(), (place % 3).tolist())


def test_whole_frames_keep_their_provenance():
    before = whole_frames(4)
    after = reshape_provenance(before, cols=3)
    for name in ("steps", "rows", "cols"):
        assert torch.equal(getattr(after, name), getattr(before, name))
    policy = make_policy("infinipot_v", {}, 0)
    kept = Reshaped(make_policy("infinipot_v", {}, 0), 3).select(before, 14)
    assert torch.equal(kept, policy.select(before, 14))


def test_survivors_are_renumbered_and_the_newest_frames_stay_whole():
    # Two leftovers of steps 0 and 7, then the whole of step 9.
    before = tokens([0, 7] + [9] * 6, [1, 1, 0, 0, 0, 1, 1, 1], [2, 0] + [0, 1, 2] * 2)
    after = reshape_provenance(before, cols=3)
    assert after.steps[0, 1].tolist() == [0, 0] + [1] * 6
    assert after.rows[0, 1].tolist() == [1, 1, 0, 0, 0, 1, 1, 1]
    assert after.cols[0, 1].tolist() == [1, 2, 0, 1, 2, 0, 1, 2]
    assert after.keys(slice(None), "content") is not None
    assert after.max_tokens == before.max_tokens
