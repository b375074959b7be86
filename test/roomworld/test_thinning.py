"""Thinned streams: what is left is evidence enough, and weighs as much as the whole."""

from __future__ import annotations

import numpy as np

from infinipot_ros.roomworld.training.streams import draw_stream
from infinipot_ros.roomworld.training.thinning import shows_object, survivors, thinned
from infinipot_ros.roomworld.training.views import NO_KIND
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS


def test_tokens_show_an_object_where_they_are_labelled(pool) -> None:
    stream = draw_stream(np.random.default_rng(3), pool, 20)
    shows = shows_object(pool, stream).reshape(20, 9)
    for step in range(20):
        kinds = pool.labels[0, stream.scenes[step], stream.views[step]]
        assert shows[step].tolist() == [0 <= kind < NO_KIND for kind in kinds]


def test_a_token_of_every_sighting_survives(pool) -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(60):
        stream = draw_stream(rng, pool, 24)
        kept = survivors(rng, pool, stream)
        assert kept.shape == (24 * 9,)
        shares.append(kept.mean())
        kinds, colors = pool.labels[:, stream.scenes, stream.views].reshape(2, -1)
        left = {
            (KINDS[kinds[token]], list(COLORS)[colors[token]], int(stream.visits[token // 9]))
            for token in np.flatnonzero(kept & shows_object(pool, stream))
        }
        assert left == {(s.kind, s.color, s.visit) for s in stream.sightings}
    assert min(shares) < 0.2
    assert max(shares) > 0.8


def test_an_evaluation_sees_streams_as_they_are(pool, plan) -> None:
    rng = np.random.default_rng(0)
    judged = plan(n_steps=12, longest=1500, training=False)
    tokens, log_weights = thinned(rng, pool, draw_stream(rng, pool, 12), judged)
    assert tokens.tolist() == list(range(12 * 9))
    assert (log_weights == 0).all()


def test_a_stream_is_thinned_in_order_and_loses_no_object(pool, plan) -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        stream = draw_stream(rng, pool, 24)
        thin = plan(n_steps=24, thinned=0.33)
        tokens, log_weights = thinned(rng, pool, stream, thin)
        assert len(tokens) == len(log_weights) == thin.n_tokens == round(0.33 * 24 * 9)
        assert (np.diff(tokens) > 0).all()
        assert set(np.flatnonzero(shows_object(pool, stream))) <= set(tokens.tolist())
        assert (log_weights >= 0).all()
