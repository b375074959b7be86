"""Whether a configuration leaves room on a model's position axes: refused, warned of, or quiet."""

from __future__ import annotations

import logging

import pytest

from infinipot_ros.core import ConfigError, EngineConfig
from infinipot_ros.core.numbering import StepGrids, TokenByToken, VideoGrid
from infinipot_ros.core.position_limit import check_position_limit, compacted_end


def _check(numbering, limit, *, fixed=None, patches=16, text=0, **config):
    check_position_limit(
        EngineConfig(**{"max_tokens": 400, "block_steps": 2, **config}),
        numbering,
        limit=limit,
        fixed=fixed,
        around=(10, 50),
        patches=patches,
        text=text,
    )


@pytest.mark.parametrize(
    "numbering, text, least",
    [
        (VideoGrid(2), 0, 10 + 2 * (16 + 50)),
        (StepGrids(), 4, 10 + 2 * (2 * 20 + 50)),
        (TokenByToken(), 4, 10 + 2 * (2 * 20 + 50)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_least_limit_is_named_and_does(numbering, text, least):
    with pytest.raises(ConfigError, match=f"at least {least} positions"):
        _check(numbering, least - 1, text=text)
    _check(numbering, least, text=text)


@pytest.mark.parametrize(
    "numbering, text, held",
    [
        (VideoGrid(2), 0, 800),  # one token of each of 400 steps
        (StepGrids(), 4, 80 * 20),  # 80 steps of one patch and four tokens of text
        (TokenByToken(), 4, 400),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_memory_that_may_be_squeezed_is_told_of(numbering, text, held, caplog):
    caplog.set_level(logging.INFO)
    needed = numbering.most(2, 16, text) + 50
    enough = next(
        limit for limit in range(100, 10_000) if compacted_end(10, limit - needed) - 10 >= held
    )
    _check(numbering, enough, text=text)
    assert not caplog.records
    _check(numbering, enough - 2, text=text)
    (record,) = caplog.records
    assert f"may come to span {held} positions" in record.message


@pytest.mark.parametrize(
    "numbering, limit, level",
    [
        (VideoGrid(2), 300, logging.INFO),  # 25 whole steps span 50 positions
        (VideoGrid(8), 300, logging.WARNING),  # 25 whole steps span 200
        (TokenByToken(), 500, logging.WARNING),
    ],
    ids=["rare", "sure", "tokens"],
)
def test_it_is_a_warning_where_whole_steps_do_not_fit(numbering, limit, level, caplog):
    caplog.set_level(logging.INFO)
    _check(numbering, limit)
    assert [record.levelno for record in caplog.records] == [level]


def test_a_memory_without_a_cap_is_not_warned_of(caplog):
    _check(TokenByToken(), 300, policy="full")
    _check(TokenByToken(), 300, positions="absolute")
    assert not caplog.records


def test_a_limit_that_changes_the_rotation_cannot_be_passed():
    _check(TokenByToken(), 4096, fixed=4096)
    with pytest.raises(ConfigError, match="position_limit to at most 4096"):
        _check(TokenByToken(), 4097, fixed=4096, position_limit=4097)
    with pytest.raises(ConfigError, match="positions to 'compact'"):
        _check(TokenByToken(), 4096, fixed=4096, positions="absolute")
