"""Signals equal a plain, slow loop over their equations, over a stream that keeps losing tokens."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infinipot_ros.compression import similarity
from infinipot_ros.compression.blend import Change, ValueNorm
from infinipot_ros.compression.coreset import Coverage
from infinipot_ros.compression.joint import Described
from infinipot_ros.compression.leverage import Rareness
from infinipot_ros.compression.novelty import FirstSight, best_of_each_age
from infinipot_ros.compression.similarity import ALONE, ranks
from infinipot_ros.compression.sketch import Sketch

RECENT_STEPS = 2
CLOSE = 4e-4  # float32 against float64, and the grid that scores are rounded to


@st.composite
def streams(draw):
    """Blocks of steps with a part to keep after each; the grid changes now and then."""
    grids = st.tuples(st.integers(1, 3), st.integers(1, 4))
    grid = draw(grids)
    blocks = []
    for _ in range(draw(st.integers(2, 5))):
        if draw(st.booleans()) and blocks:
            grid = draw(grids)
        part = draw(st.floats(0.3, 0.9) | st.sampled_from([0.0, 1.0]))
        blocks.append((grid, draw(st.integers(1, 3)), part))
    return blocks


def described(blocks, seed, signal):
    """Run a signal over a stream with random survivors; yield what it sees and its scores."""
    rng = torch.Generator().manual_seed(seed)
    features, norms = torch.empty(0, 4), torch.empty(0)
    steps, places = torch.empty(2, 0, dtype=torch.int64)
    step = 0
    for (rows, cols), count, part in blocks:
        n_known = len(steps)
        for _ in range(count):
            n = rows * cols
            features = torch.cat([features, torch.randn(n, 4, generator=rng)])
            norms = torch.cat([norms, torch.rand(n, generator=rng)])
            steps = torch.cat([steps, torch.full((n,), step)])
            grid = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).view(-1, 2)
            places = torch.cat([places, grid[:, 0] * 4 + grid[:, 1]])
            step += 1
        recent = steps > step - 1 - RECENT_STEPS
        view = Described(features, norms, steps, places, recent, n_known)
        yield view, signal.scores(view)
        noise = torch.rand(len(steps), generator=rng)
        slots = noise.topk(round(part * len(steps))).indices.sort().values
        signal.follow(slots)
        features, norms, steps, places = (x[slots] for x in (features, norms, steps, places))


def tokens_of(view):
    """Return the tokens as (place, feature): a place is (step, patch)."""
    places = zip(view.steps.tolist(), view.places.tolist(), strict=True)
    return list(zip(places, view.features.tolist(), strict=True))


def apart(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


class History:
    """What a plain loop remembers: the least distances of each token for life."""

    def __init__(self):
        self.seen, self.older, self.newer = [], {}, {}

    def compare(self, tokens, gap):
        """Take in new tokens with the definitions of `coreset.py`; return them."""
        new = [t for t in tokens if t[0] not in self.older]
        for place, feature in new:
            past = {y[0]: apart(feature, y[1]) for y in tokens if y[0][0] <= place[0] - gap}
            self.older[place] = min(past.values(), default=math.inf)
            for other, distance in past.items():
                self.newer[other] = min(self.newer.get(other, math.inf), distance)
        self.seen += new
        return new


compared = {"blocks": streams(), "seed": st.integers(0, 1000), "gap": st.integers(1, 3)}
thorough = settings(max_examples=80, deadline=None, derandomize=True)


@thorough
@given(**compared)
def test_novelty_equals_naive_loop(blocks, seed, gap):
    history, frozen = History(), {}
    for view, scores in described(blocks, seed, FirstSight(gap)):
        tokens = tokens_of(view)
        for place, _ in history.compare(tokens, gap):
            frozen[place] = history.older[place]
            if frozen[place] == math.inf:
                frozen[place] = history.newer.get(place, ALONE)
        expected = [frozen[place] for place, _ in tokens]
        assert scores.tolist() == pytest.approx(expected, rel=CLOSE, abs=CLOSE)


@thorough
@given(**compared)
def test_coverage_equals_naive_loop(blocks, seed, gap):
    history = History()
    for view, scores in described(blocks, seed, Coverage(gap)):
        tokens, expected = tokens_of(view), []
        history.compare(tokens, gap)
        for place, _ in tokens:
            sides = history.older[place], history.newer.get(place, math.inf)
            expected.append(max((side for side in sides if side < math.inf), default=ALONE))
        assert scores.tolist() == pytest.approx(expected, rel=CLOSE, abs=CLOSE)


@thorough
@given(blocks=streams(), seed=st.integers(0, 1000))
def test_change_equals_naive_loop(blocks, seed):
    for view, scores in described(blocks, seed, Change()):
        tokens = tokens_of(view)
        newest = view.steps[-1].item() if len(view.steps) else 0
        for (place, feature), score in zip(tokens, scores.tolist(), strict=True):
            present = [
                apart(feature, other)
                for (step, patch), other in tokens
                if step > newest - RECENT_STEPS and patch == place[1]
            ]
            expected = sum(present) / len(present) if present else 1e6
            assert score == pytest.approx(expected, rel=CLOSE, abs=CLOSE)


@thorough
@given(blocks=streams(), seed=st.integers(0, 1000), ridge=st.sampled_from([0.01, 0.1, 1.0]))
def test_leverage_equals_its_equation_over_all_that_was_ever_seen(blocks, seed, ridge):
    history = History()
    for view, scores in described(blocks, seed, Rareness(ridge)):
        history.compare(tokens_of(view), 1)
        seen = torch.tensor([feature for _, feature in history.seen]).double()
        mean = seen.mean(0)
        covariance = (seen - mean).T @ (seen - mean) / len(seen)
        loaded = covariance + (ridge * covariance.trace() / 4 + 1e-6) * torch.eye(4)
        x = view.features.double() - mean
        expected = ((x @ loaded.inverse()) * x).sum(-1) / 4
        assert scores.tolist() == pytest.approx(expected.tolist(), rel=2e-3, abs=CLOSE)


def test_value_norm_is_what_the_sketch_says():
    for view, scores in described([((2, 3), 2, 0.5), ((2, 3), 1, 1.0)], 0, ValueNorm()):
        assert torch.allclose(scores, view.norms, atol=CLOSE)


@pytest.mark.parametrize(
    "make", [lambda: FirstSight(1), lambda: Coverage(1), Rareness, Change, ValueNorm]
)
def test_a_broken_token_leaves_the_others_as_they_are_without_it(make):
    """It is compared with nothing; what it scores itself the policy overrules."""
    rng = torch.Generator().manual_seed(0)
    features, norms = torch.randn(24, 4, generator=rng), torch.rand(24, generator=rng)
    steps, places = torch.arange(24) // 6, torch.arange(24) % 6
    sound = torch.ones(24, dtype=torch.bool)
    sound[[7, 20]] = False
    features[~sound], norms[~sound] = torch.nan, torch.nan
    scores = make().scores(Described(features, norms, steps, places, steps > 2, 0))
    assert scores.isfinite().all()
    if make is not Rareness:  # its mean counts a broken token as one of zeros
        without = (x[sound] for x in (features, norms, steps, places, steps > 2))
        expected = make().scores(Described(*without, 0))
        assert torch.allclose(scores[sound], expected, atol=CLOSE)


def test_blocks_do_not_change_the_nearest(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    features, steps = torch.randn(96, 8, generator=rng), torch.arange(96) // 12
    expected = similarity.nearest(features, steps, 40, 2)
    for size in (1, 700, 5000):
        monkeypatch.setattr(similarity, "_BLOCK_CPU", size)
        found = similarity.nearest(features, steps, 40, 2)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True))


def test_blocks_do_not_alter_the_change(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    features, steps = torch.randn(96, 8, generator=rng), torch.arange(96) // 12
    places, norms = torch.arange(96) % 12, torch.ones(96)
    view = Described(features, norms, steps, places, steps > 5, 0)
    expected = Change().scores(view)
    for size in (1, 100, 1000):
        monkeypatch.setattr(similarity, "_BLOCK_CPU", size)
        assert torch.allclose(Change().scores(view), expected, atol=CLOSE)


def test_distances_stay_within_a_block(monkeypatch):
    """The largest temporary is a block of distances, not new tokens times stored ones."""
    sizes = []
    amin = torch.Tensor.amin

    def record(self, *args, **kwargs):
        sizes.append(self.numel())
        return amin(self, *args, **kwargs)

    monkeypatch.setattr(similarity, "_BLOCK_CPU", 4096)
    monkeypatch.setattr(torch.Tensor, "amin", record)
    similarity.nearest(torch.zeros(512, 4), torch.arange(512) // 16, 128, 1)
    assert 0 < max(sizes) <= 4096


def test_distances_of_sketches_are_the_mean_over_heads(make_store):
    store = make_store(layers=3, heads=2, dim=16)
    store.append(3, 4, 3)
    features, norms, n_known = Sketch(0.3, 8192, 6).update(store.view())
    assert n_known == 0
    total, lengths = torch.zeros(36, 36), torch.zeros(36)
    for share, kind in ((0.7, store.content), (0.3, store.values)):
        for vectors in kind.flatten(0, 1):
            spread = (vectors - vectors.mean(0)).square().sum(-1).mean()
            total += share / 6 * torch.cdist(vectors, vectors).square() / spread
            if kind is store.values:
                lengths += vectors.norm(dim=-1) / spread.sqrt() / 6
    found = torch.cdist(features, features).square()
    assert torch.allclose(found, total, rtol=0.15, atol=1e-3)
    assert torch.allclose(norms, lengths, atol=1e-4)


def test_a_sketch_is_made_once_and_follows_its_token(make_store):
    store = make_store(layers=2, heads=2)
    store.append(3, 4, 3)
    sketch = Sketch(0.5, 16, 4)
    first, norms, _ = sketch.update(store.view())
    slots = torch.tensor([1, 5, 6, 20, 35])
    sketch.follow(slots)
    store.retain(slots.expand(2, 2, -1))
    store.append(3, 4)
    second, later, n_known = sketch.update(store.view())
    assert n_known == 5
    assert torch.equal(second[:5], first[slots])
    assert torch.equal(later[:5], norms[slots])
    assert second.shape == (17, 16)


def test_ranks_count_what_is_lower():
    scores = torch.tensor([[0.5, -torch.inf, 0.5, 2.0, 0.1]])
    assert ranks(scores).tolist() == [[2, 0, 2, 4, 1]]


def test_ages_are_counted_in_powers_of_two():
    steps = torch.arange(20)
    scores = -steps.float()  # the oldest of each age is best
    protected = torch.zeros(20, dtype=torch.bool)
    chosen = best_of_each_age(scores, protected, steps, buckets=3, each=2)
    assert (20 - steps[chosen]).tolist() == [20, 19, 3, 2, 1]  # 4 and above, 2 and 3, 1
    protected[-2:] = True
    chosen = best_of_each_age(scores, protected, steps, buckets=3, each=1)
    assert (20 - steps[chosen]).tolist() == [20, 3, 2, 1]


def test_a_broken_token_is_not_the_best_of_its_age():
    scores = torch.tensor([-torch.inf, -torch.inf, 1.0, -torch.inf])
    nothing = torch.zeros(4, dtype=torch.bool)
    chosen = best_of_each_age(scores, nothing, torch.arange(4), buckets=2, each=2)
    assert chosen.tolist() == [False, False, True, False]
