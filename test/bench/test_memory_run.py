"""`infinipot bench memory` from its options to its files, in miniature."""

from __future__ import annotations

import contextlib
import csv
import gzip
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from infinipot_ros import cli
from infinipot_ros.bench.memory import command, options
from infinipot_ros.bench.memory.answers import ALL, Answers
from infinipot_ros.bench.memory.figures import accuracies, best, pairs
from infinipot_ros.bench.memory.plan import Size
from infinipot_ros.bench.memory.pool import Terminated, run_jobs
from infinipot_ros.bench.memory.worker import Record
from infinipot_ros.roomworld.evaluate import wilson

TINY = Size(
    steps=32,
    tour_steps=16,
    caps=(Fraction(1, 4), Fraction(1, 8)),
    ablation_caps=(Fraction(1, 4),),
    streams=2,
    per_kind=1,
    short_steps=24,
    long_steps=(32, 40),
    length_cap_steps=8,
    length_streams=2,
)
FEW = ["--policy", "infinipot_v,recent", "--regimes", "patrol,watch"]
FILES = {
    "memory.csv", "memory_pairs.csv", "memory_answers.csv.gz", "memory_length.csv", "memory.md",
    "memory_by_cap.png", "memory_by_delay.png",
}  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(options, "QUICK", TINY)


def run(*arguments):
    return cli.main(["bench", "memory", "--quick", *arguments])


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_prints_and_writes_all_its_figures_whatever_the_number_of_workers(tmp_path, capsys):
    assert run(*FEW, "--workers", "2", "--out", str(tmp_path / "two")) == 0
    printed = capsys.readouterr()
    assert "3 policies, 2 streams of 64 frames in each of 2 regimes" in printed.out
    assert "cap 1/8: 36 tokens, 4 steps (blocks of 1)" in printed.out
    assert "Complete: 16 streams" in printed.out
    assert "written: " in printed.out
    assert printed.err == ""
    assert {path.name for path in (tmp_path / "two").iterdir()} == FILES
    assert run(*FEW, "--workers", "1", "--out", str(tmp_path / "one")) == 0
    for name in sorted(FILES - {"memory.md"}):
        if not name.endswith(".png"):
            one, two = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
            assert one == two, name
    found = rows(tmp_path / "one" / "memory.csv")
    assert {row["regime"] for row in found} == {"patrol", "watch", "all"}
    assert {row["policy"] for row in found} == {"full", "infinipot_v", "recent"}
    assert {row["delay"] for row in found if row["cap"] == "1/8"} == {"0", "1", "4", "later"}
    assert {row["delay"] for row in found if row["cap"] == "1/4"} == {"0", "1", "later"}
    assert all(float(r["low"]) <= float(r["accuracy"]) <= float(r["high"]) for r in found)
    text = (tmp_path / "one" / "memory.md").read_text(encoding="utf-8")
    assert "| model | roomworld |" in text
    assert "## Length of the stream" in text
    with gzip.open(tmp_path / "one" / "memory_answers.csv.gz", "rt", encoding="utf-8") as file:
        answers = list(csv.DictReader(file))
    at_once = [
        row for row in answers
        if (row["regime"], row["policy"], row["cap"], row["delay"]) == ("watch", "full", "1/8", "0")
        and row["kind"] != "now"
    ]  # fmt: skip
    (counted,) = (
        row for row in found
        if (row["regime"], row["policy"], row["cap"], row["delay"], row["kind"])
        == ("watch", "full", "1/8", "0", "all")
    )  # fmt: skip
    assert int(counted["n"]) == len(at_once)
    right = sum(row["truth"] == row["answer"] for row in at_once)
    assert float(counted["accuracy"]) == pytest.approx(right / len(at_once), abs=1e-4)


def test_ablations_compare_variants(tmp_path, capsys):
    only = ["--ablations", "--regimes", "patrol", "--workers", "1", "--out", str(tmp_path)]
    assert run(*only) == 0
    printed = capsys.readouterr().out
    assert "TaR to previous" in printed
    assert "left out: retain_ratio 0.9 cannot work at cap 1/4: a block of 18 tokens" in printed
    assert {path.name for path in tmp_path.iterdir()} == {
        "memory_ablations.csv", "memory_ablations_pairs.csv", "memory_ablations_answers.csv.gz",
        "memory_ablations.md",
    }  # fmt: skip
    text = (tmp_path / "memory_ablations.md").read_text(encoding="utf-8")
    assert "| provenance | infinipot_v |" in text
    assert "reshaped" in text
    assert "- retain_ratio 0.9 cannot work at cap 1/4" in text


def test_what_is_complete_survives_an_interruption(tmp_path, capsys, monkeypatch):
    genuine, calls = command.run_job, []

    def interrupted(job):
        calls.append(job)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return genuine(job)

    monkeypatch.setattr(command, "run_job", interrupted)
    assert run(*FEW, "--workers", "1", "--out", str(tmp_path)) == 130
    assert "Stopped after 2 of 16 streams" in capsys.readouterr().out
    assert "Stopped after 2 of 16 streams" in (tmp_path / "memory.md").read_text(encoding="utf-8")
    assert {row["streams"] for row in rows(tmp_path / "memory.csv")} == {"1", "2"}


def test_nothing_complete_is_no_figures(capsys, monkeypatch):
    def interrupted(job):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_job", interrupted)
    assert run(*FEW, "--workers", "1") == 130
    assert "No figures" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--policy", "lru"], "--policy names 'lru'; choose from infinipot_v, tar"),
        (["--policy", "full"], "full is always run"),
        (["--regimes", "patrol,space"], "--regimes names 'space'; choose from patrol, watch"),
        (["--caps", "1/4,most"], "--caps names 'most'; give fractions"),
        (["--caps", "1/0"], "--caps names '1/0'"),
        (["--caps", "1e99999999"], "--caps names '1e99999999'; give fractions"),
        (["--streams", "10001"], "--streams is 10001; choose 10000 or fewer"),
        (["--out", ""], "--out is empty"),
        (["--out", "~nobody_of_this_name/x"], "--out ~nobody_of_this_name/x cannot be made"),
        (["--model", "~nobody_of_this_name/x"], "cannot be found"),
        (["--caps", "2"], "--caps names 2; choose shares from 1/8"),
        (["--caps", "1/64"], "(4 of 32 steps) to below 1"),
        (["--streams", "1"], "--streams is 1; choose 2 or more"),
        (["--workers", "0"], "--workers is 0; choose 1 or more"),
        (["--seed", "-1"], "--seed is -1"),
        (
            ["--policy", "tar", "--against", "van"],
            "--against is 'van'; choose one that is run: tar",
        ),
        (["--ablations", "--policy", "tar"], "leave out --policy"),
        (["--out", "/proc/nowhere"], "--out /proc/nowhere cannot be made"),
        (["--model", "nosuch"], "model 'nosuch' is neither"),
    ],
)
def test_useless_options_are_refused_before_any_work(arguments, said, capsys, monkeypatch):
    monkeypatch.setattr(command, "run_jobs", lambda *_: pytest.fail("work was begun"))
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run("--out", str(tmp_path / "file" / "folder")) == 2
    assert "cannot be made: Not a directory" in capsys.readouterr().err


def test_a_folder_in_the_way_of_a_file_is_named(tmp_path, capsys):
    (tmp_path / "memory_of_another").mkdir()
    (tmp_path / "memory.csv").mkdir()
    assert run("--out", str(tmp_path)) == 2
    assert "memory.csv cannot be overwritten; choose another" in capsys.readouterr().err


def test_files_are_written_though_nobody_reads_the_tables(tmp_path, monkeypatch):
    def closed(*_):
        raise BrokenPipeError

    monkeypatch.setattr(command, "_show", closed)
    only = ["--policy", "recent", "--regimes", "watch", "--workers", "1"]
    only += ["--device", "auto", "--caps", "15/16"]  # too large for a later question
    assert run(*only, "--out", str(tmp_path)) == 1
    assert {path.name for path in tmp_path.iterdir()} == FILES - {"memory_by_delay.png"}
    text = (tmp_path / "memory.md").read_text(encoding="utf-8")
    assert "memory_by_cap.png" in text
    assert "memory_by_delay.png" not in text


def test_help_explains_the_options(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "memory", "--help"])
    printed = capsys.readouterr().out
    assert all(option in printed for option in ("--quick", "--ablations", "--regimes", "--caps"))


def half(number):
    """Fail in the middle; of the module, so that a process can import it."""
    if number == 2:
        raise ValueError("two")
    return number / 2


def test_a_failure_ends_the_run_and_keeps_what_was_done():
    finished = run_jobs(half, [0, 1, 2, 3], 1, "job")
    assert finished.results == {0: 0.0, 1: 0.5}
    assert isinstance(finished.stopped_by, ValueError)


def test_a_process_that_is_killed_is_reported():
    finished = run_jobs(os._exit, [9, 9], 2, "job")
    assert finished.results == {}
    assert "a worker process was killed" in str(finished.stopped_by)


def terminate_at_two(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    return number


def test_sigterm_ends_the_run_and_keeps_what_was_done():
    before = signal.getsignal(signal.SIGTERM)
    finished = run_jobs(terminate_at_two, [0, 1, 2, 3], 1, "job")
    assert finished.results == {0: 0, 1: 1}
    assert isinstance(finished.stopped_by, Terminated)
    assert signal.getsignal(signal.SIGTERM) is before


_PARENT = """
import sys, time
sys.path[:0] = {path!r}
from infinipot_ros.bench.memory.pool import run_jobs
if __name__ == "__main__":
    run_jobs(time.sleep, [600, 600], 2, "job")
"""


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_its_parent(sign, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(_PARENT.format(path=sys.path), encoding="utf-8")
    parent = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
    try:
        wait_for(lambda: len(workers_of(parent.pid)) == 2)
        parent.send_signal(sign)
        parent.wait(20)
        wait_for(lambda: not workers_of(parent.pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def workers_of(group):
    """Return the running worker processes of a process group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, pgid = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgid) == group and state != "Z":
                found += ["spawn_main" in (folder / "cmdline").read_text()]
    return [one for one in found if one]


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# -- counting --------------------------------------------------------------------------------


def record(stream, policy, delay, answer, kind="color", regime="watch"):
    return Record(regime, stream, policy, "1/4", delay, kind, f"{kind} ?", "red", answer)


RECORDS = [
    *(record(s, "full", d, "red") for s in (0, 1) for d in (0, 1)),
    *(record(s, "tar", d, "red" if d == 0 else "blue") for s in (0, 1) for d in (0, 1)),
    *(record(s, "van", d, "red" if s == 0 else "blue") for s in (0, 1) for d in (0, 1)),
    record(0, "van", 0, "red", kind="now"),
]


@pytest.fixture
def counted():
    return Answers.of(
        RECORDS, policies=["full", "tar", "van", "absent"], caps=["1/4"], regimes=["watch", "cuts"]
    )


def test_answers_are_counted_by_stream_and_now_is_apart(counted):
    assert counted.policies == ("full", "tar", "van")
    assert counted.regimes == ("watch",)
    cell = counted.cell("van", "1/4", (0, 1), ALL, "watch")
    assert (cell.right.tolist(), cell.asked.tolist(), cell.strata) == ([2, 0], [2, 2], (2,))
    now = counted.cell("van", "1/4", (0, 1), "now", ALL)
    assert (now.right.tolist(), now.asked.tolist()) == ([1, 0], [1, 0])
    assert counted.delays_at("1/4") == (0, 1)
    assert counted.later("1/4") == (1,)
    assert counted.guessing == {"watch": 1.0, ALL: 1.0}


def test_questions_about_the_present_are_not_repeats():
    """One that was asked once, in a span of several delays, is one question and not none."""
    once = [record(0, "tar", d, "red") for d in (1, 2)] + [record(0, "tar", 2, "red", kind="now")]
    answers = Answers.of(once, policies=["tar"], caps=["1/4"], regimes=["watch"])
    found = {a.kind: a for a in accuracies(answers) if (a.regime, a.delay) == ("watch", "later")}
    assert found["now"].share == tuple(wilson(1, 1))
    assert found["color"].share == tuple(wilson(1, 1))
    assert found["color"].n == 2


def test_figures_by_hand(counted):
    found = {(a.policy, a.delay, a.kind): a for a in accuracies(counted) if a.regime == "watch"}
    assert found["tar", "0", "all"].share.value == 1.0
    assert found["tar", "later", "color"].share.value == 0.0
    assert found["van", "1", "all"].share == (0.5, 0.0, 1.0)
    assert found["van", "0", "now"].n == 1
    assert best(counted, "1/4", (0,), "watch") == "tar"
    assert best(counted, "1/4", (1,), "watch") == "van"
    compared = {(p.policy, p.delay, p.reference): p for p in pairs(counted, "tar")}
    later = compared["van", "later", "tar"]
    assert later.difference == (0.5, 0.0, 1.0)
    assert (later.p, later.n, later.streams) == (1.0, 2, 2)
    assert compared["tar", "later", "best"].against == "van"
    assert compared["tar", "later", "full"].difference.value == -1.0
    assert compared["tar", "later", "full"].p == 0.5
    assert ("van", "later", "best") not in compared
    assert ("full", "later", "best") not in compared
