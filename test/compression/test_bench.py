"""`infinipot bench compression` measures what it says, or says that it cannot."""

from __future__ import annotations

import argparse
import json

import pytest
import torch

from infinipot_ros.bench import compression as bench
from infinipot_ros.bench import literal

SMALL = ["--layers", "5", "--heads", "2", "--tokens", "480", "--dim", "16", "--keep", "360"]
SMALL += ["--per-step", "12", "--repeats", "1"]


def run(*options):
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return bench.run(parser.parse_args([*SMALL, *options]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_prints_and_writes_the_figures(capsys, tmp_path, dtype):
    assert run("--out", str(tmp_path), "--dtype", dtype) == 0
    printed = capsys.readouterr().out
    assert f"[5, 2, 480, 16] {dtype}" in printed
    saved = json.loads((tmp_path / "compression.json").read_text())
    assert [row["first compression"].strip() for row in saved["rows"]] == [
        "whole selection", "TaR scores", "VaN scores", "choice", "later compression",
    ]  # fmt: skip
    assert all(float(row["ours ms"]) > 0 for row in saved["rows"])
    assert saved["context"]["largest score difference"] < 1e-4
    assert (tmp_path / "compression.csv").exists()


@pytest.mark.parametrize("name", ["tar_scores", "van_scores", "choose"])
def test_gives_no_figures_when_the_two_disagree(capsys, monkeypatch, name):
    original = getattr(literal, name)
    monkeypatch.setattr(literal, name, lambda *args: original(*args) * 0)
    assert run() == 1
    printed = capsys.readouterr()
    assert "the two disagree, no figures" in printed.err
    assert "whole selection" not in printed.out


@pytest.mark.parametrize(
    "options, message",
    [
        (["--layers", "0"], "--layers 0: choose 1 or more"),
        (["--per-step", "13"], "--tokens 480 is not a multiple of --per-step 13"),
        (["--keep", "480"], "--keep 480: choose a number below --tokens 480"),
        (["--keep", "100"], "half holds the 60 recent tokens"),
    ],
)
def test_refuses_sizes_that_clash(capsys, options, message):
    assert run(*options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_refuses_a_device_that_is_not_there(capsys):
    assert run("--device", "cuda") == 2
    assert "torch finds no CUDA device here, choose cpu" in capsys.readouterr().err


def test_a_later_compression_has_whole_recent_steps_and_scattered_others():
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    case = bench._Case.random(parser.parse_args(SMALL))
    tokens = case.later()
    assert (tokens.steps[..., 1:] >= tokens.steps[..., :-1]).all()
    assert tokens.steps[0, 0, -60:].unique().numel() == 5
    assert tokens.steps[0, 0, :-60].unique().numel() > 200
    assert not torch.equal(tokens.steps[0, 0], tokens.steps[0, 1])
