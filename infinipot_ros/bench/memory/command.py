"""`infinipot bench memory`: which retention policy remembers what, under which cap, for how long.

Streams of five regimes show a few events in their first quarter and nothing of note afterwards. The
same questions about the events are asked at once and ever later, to engines that differ in policy
and cap only, and to one that keeps everything. Answers are scored to the letter; intervals and
significance take the stream as the unit.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time

import numpy as np
import torch

from infinipot_ros import __version__
from infinipot_ros.bench.measure import machine
from infinipot_ros.bench.memory.answers import ALL
from infinipot_ros.bench.memory.files import write_csv_files
from infinipot_ros.bench.memory.options import Options
from infinipot_ros.bench.memory.plan import forecast
from infinipot_ros.bench.memory.pool import Finished, Terminated, run_jobs
from infinipot_ros.bench.memory.report import markdown_report
from infinipot_ros.bench.memory.streams import TOUR_KINDS
from infinipot_ros.bench.memory.study import Results, Study, make_results, make_study
from infinipot_ros.bench.memory.tables import p_value, signed, terminal_table
from infinipot_ros.bench.memory.worker import Record, run_job, the_adapter

_INTERRUPTED, _TERMINATED = 130, 143


def run(args: argparse.Namespace) -> int:
    """Measure, print and write; return 0, 130 when interrupted, 143 when terminated."""
    options = Options.of(args)
    torch.set_num_threads(1)
    adapter = the_adapter(options.model, options.device)
    study = make_study(options, adapter)
    jobs = (*study.jobs, *study.length_jobs)
    print(_plan(study))
    for note in study.notes:
        print(f"left out: {note}")
    sys.stdout.flush()  # in a log, too, the plan stands there while the work goes on
    started = time.monotonic()
    finished = run_jobs(run_job, jobs, options.workers, "stream")
    results = make_results(study, finished.results)
    status = _status(study, finished, time.monotonic() - started)
    if results is None:
        print(f"{status} No figures.", file=sys.stderr)
    else:
        try:
            _show(study, results, status)
        finally:  # whoever read the tables may be gone; the files are still wanted
            if options.out is not None:
                _write(study, results, status, adapter.shape.device)
    if finished.stopped_by is None:
        return 0
    if isinstance(finished.stopped_by, KeyboardInterrupt):
        return _TERMINATED if isinstance(finished.stopped_by, Terminated) else _INTERRUPTED
    raise finished.stopped_by


def _plan(study: Study) -> str:
    options, size = study.options, study.options.size
    what = f"{len(study.variants)} {'variants' if options.ablations else 'policies'}"
    caps = ", ".join(f"{cap.label} = {cap.max_tokens} tokens" for cap in study.caps)
    jobs = (*study.jobs, *study.length_jobs)
    kept = "" if options.out else "\nfigures are printed only; --out DIR keeps them"
    return (
        f"model {options.model}, seed {options.seed}, {what}, "
        f"{options.streams} streams of {2 * size.steps} frames in each of "
        f"{len(options.regimes)} regimes\n"
        f"caps: {caps}\n"
        f"work: {forecast(jobs, len(TOUR_KINDS), options.workers)}{kept}\n"
    )


def _status(study: Study, finished: Finished[list[Record]], seconds: float) -> str:
    total = len(study.jobs) + len(study.length_jobs)
    done = len(finished.results)
    if finished.stopped_by is None:
        return f"Complete: {done} streams in {seconds / 60:.1f} min."
    return (
        f"Stopped after {done} of {total} streams: what follows rests on the completed ones only."
    )


def _show(study: Study, results: Results, status: str) -> None:
    print(
        f"{status} Exact match. fresh: asked at the end of the tour; later: 1, 4 and 16 times the\n"
        "steps that the cap can hold after it, where the stream is long enough; now: about the\n"
        "present, at all these moments. * marks the best bounded policies of a column, unless all "
        "tie.\n"
    )
    for cap in study.caps:
        if cap.label in results.answers.caps:
            print(terminal_table(results.answers, cap) + "\n")
    overall = [f for f in results.length if f.regime == ALL]
    if overall:
        print(
            f"accuracy of {study.length_policy} after longer streams, against "
            f"{2 * study.options.size.short_steps} frames:"
        )
        for figure in overall:
            kind = "tour" if figure.kind == ALL else figure.kind
            print(
                f"  {2 * figure.steps} frames, positions {figure.positions:9s} {kind:5s} "
                f"{figure.short.value:.2f} -> {figure.long.value:.2f}, {signed(figure.change)}, "
                f"p {p_value(figure.p)}"
            )
        print()


def _write(study: Study, results: Results, status: str, device: torch.device) -> None:
    from infinipot_ros.bench.memory.plots import plot_by_cap, plot_by_delay

    options = study.options
    assert options.out is not None
    written = write_csv_files(study, results, options.out)
    context: dict[str, object] = {
        **machine(device),
        "processor": platform.processor() or platform.machine(),
        "processes": options.workers,
        "numpy": np.__version__,
        "infinipot_ros": __version__,
    }
    path = options.out / f"{study.stem}.md"
    path.write_text(markdown_report(study, results, context, status), encoding="utf-8")
    written.append(path)
    # Last: where matplotlib is broken, everything else is there.
    if not options.ablations:
        size = options.size
        title = (
            f"RoomWorld, {2 * size.steps} frames, exact match with 95 % intervals over "
            f"{min(results.complete.values())} streams a regime"
        )
        for draw, name in ((plot_by_cap, "cap"), (plot_by_delay, "delay")):
            path = options.out / f"{study.stem}_by_{name}.png"
            if draw(results.answers, path, title):
                written.append(path)
    for file in written:
        print(f"written: {file}")
