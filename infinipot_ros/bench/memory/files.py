"""CSV files of a study."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from infinipot_ros.bench.memory.figures import accuracies
from infinipot_ros.bench.memory.statistics import Estimate
from infinipot_ros.bench.memory.study import Results, Study
from infinipot_ros.bench.memory.worker import Record

_PAIRS = ("regime", "cap", "delay", "policy", "reference", "against", "difference", "low", "high",
          "p", "p_holm", "n", "streams")  # fmt: skip
_ACCURACY = ("regime", "policy", "cap", "max_tokens", "delay", "delay_steps", "kind", "accuracy",
             "low", "high", "n", "streams")  # fmt: skip
_LENGTH = ("frames", "regime", "positions", "kind", "short", "short_low", "short_high", "long",
           "long_low", "long_high", "change", "low", "high", "p", "n", "streams")  # fmt: skip


def write_csv_files(study: Study, results: Results, folder: Path) -> list[Path]:
    """Write accuracies, paired differences, answers and, where there are any, those of length."""
    caps = {cap.label: cap for cap in study.caps}
    stem = study.stem
    written = [
        _write(
            folder / f"{stem}.csv",
            _ACCURACY,
            (
                (
                    a.regime, a.policy, a.cap, caps[a.cap].max_tokens, a.delay,
                    int(a.delay) * caps[a.cap].steps if a.delay.isdecimal() else "",
                    a.kind, *_numbers(a.share), a.n, a.streams,
                )
                for a in accuracies(results.answers)
            ),
        ),
        _write(
            folder / f"{stem}_pairs.csv",
            _PAIRS,
            (
                (
                    p.regime, p.cap, p.delay, p.policy, p.reference, p.against,
                    *_numbers(p.difference), f"{p.p:.6g}", f"{p.p_holm:.6g}", p.n, p.streams,
                )
                for p in results.pairs
            ),
        ),
        _write_answers(folder / f"{stem}_answers.csv.gz", results.records),
    ]  # fmt: skip
    if results.length:
        rows = (
            (
                2 * f.steps, f.regime, f.positions, f.kind, *_numbers(f.short), *_numbers(f.long),
                *_numbers(f.change), f"{f.p:.6g}", f.n, f.streams,
            )
            for f in results.length
        )  # fmt: skip
        written.append(_write(folder / f"{stem}_length.csv", _LENGTH, rows))
    return written


def _numbers(estimate: Estimate) -> tuple[str, str, str]:
    value, low, high = (f"{number:.4f}" for number in estimate)
    return value, low, high


def _write(path: Path, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        writer.writerows(rows)
    return path


def _write_answers(path: Path, records: Sequence[Record]) -> Path:
    """Write every answer; the same answers give the same bytes."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(Record._fields)
        writer.writerows(records)
    return path
