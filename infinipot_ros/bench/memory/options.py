"""Options of `infinipot bench memory`, refused before any work where they cannot be carried out."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from infinipot_ros.bench.memory.plan import QUICK, SMALLEST_CAP_STEPS, WHOLE, Size
from infinipot_ros.bench.memory.pool import default_workers
from infinipot_ros.bench.memory.streams import MOST_STREAMS, regimes
from infinipot_ros.bench.memory.variants import BASE, FULL, bounded_policies
from infinipot_ros.core.errors import ConfigError
from infinipot_ros.core.types import EMBEDDED_MODEL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--quick", action="store_true", help="a small run, below three minutes")
    parser.add_argument("--ablations", action="store_true", help="InfiniPot-V, one thing changed")
    parser.add_argument("--out", metavar="DIR", help="write CSV, Markdown and plots there")
    parser.add_argument("--model", default=EMBEDDED_MODEL, help="embedded, local folder, or hub id")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (cpu)")
    parser.add_argument("--policy", metavar="A,B", help="policies to compare; left out: all")
    parser.add_argument("--against", metavar="POLICY", help=f"whom to compare with ({BASE})")
    parser.add_argument("--regimes", metavar="A,B", help=f"of {', '.join(regimes())}; all")
    parser.add_argument(
        "--caps", metavar="1/4,1/16", help="caps, shares of what a whole stream needs (1/4 to 1/64)"
    )
    parser.add_argument("--streams", type=int, metavar="N", help="streams of each regime")
    parser.add_argument("--seed", type=int, default=0, help="chooses worlds and questions (0)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes; left out: all cores")


@dataclass(frozen=True)
class Options:
    """What a run was asked to do, checked.

    Attributes:
        size: how much is run.
        ablations: whether variants of InfiniPot-V are compared instead of policies.
        policies: names of bounded policies.
        named: whether the user named them: then one that cannot work is an error.
        against: the policy that the others are compared with.
        regimes: of the streams.
        caps: shares, largest first.
        streams: of each regime.
        seed: of worlds and questions.
        workers: processes.
        model: as the user gave it.
        device: of torch.
        out: folder for the files, None for none.
    """

    size: Size
    ablations: bool
    policies: tuple[str, ...]
    named: bool
    against: str
    regimes: tuple[str, ...]
    caps: tuple[Fraction, ...]
    streams: int
    seed: int
    workers: int
    model: str
    device: str
    out: Path | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Options:
        """Check the arguments.

        Raises:
            ConfigError: naming the option, its value and what would be right.
        """
        size = QUICK if args.quick else WHOLE
        if args.ablations and (args.policy or args.against):
            raise ConfigError(
                f"--ablations compares variants of {BASE}; leave out --policy and --against"
            )
        policies = _choose("--policy", args.policy, bounded_policies(), unasked=(FULL,))
        streams = size.streams if args.streams is None else args.streams
        workers = default_workers() if args.workers is None else args.workers
        for option, value, low in (
            ("--streams", streams, 2),
            ("--workers", workers, 1),
            ("--seed", args.seed, 0),
        ):
            if value < low:
                raise ConfigError(f"{option} is {value}; choose {low} or more")
        if streams > MOST_STREAMS:
            raise ConfigError(f"--streams is {streams}; choose {MOST_STREAMS} or fewer")
        return cls(
            size=size,
            ablations=args.ablations,
            policies=policies,
            named=args.policy is not None,
            against=_against(args.against, policies),
            regimes=_choose("--regimes", args.regimes, regimes()),
            caps=_caps(args.caps, size, ablations=args.ablations),
            streams=streams,
            seed=args.seed,
            workers=workers,
            model=args.model,
            device=args.device,
            out=None if args.out is None else _folder(args.out),
        )


def _choose(
    option: str, text: str | None, known: Sequence[str], *, unasked: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the names of a comma-separated list in order, all known ones where there is none."""
    if text is None:
        return tuple(known)
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in known and name not in unasked:
            raise ConfigError(f"{option} names {name!r}; choose from {', '.join(known)}")
    chosen = tuple(name for name in names if name not in unasked)
    if not chosen:
        raise ConfigError(
            f"{option} is {text!r}; {', '.join(unasked)} is always run, "
            f"name one of {', '.join(known)} beside it"
        )
    return chosen


def _against(text: str | None, policies: Sequence[str]) -> str:
    if text is None:
        return BASE if BASE in policies else policies[0]
    if text not in policies:
        raise ConfigError(f"--against is {text!r}; choose one that is run: {', '.join(policies)}")
    return text


def _caps(text: str | None, size: Size, *, ablations: bool) -> tuple[Fraction, ...]:
    if text is None:
        return size.ablation_caps if ablations else size.caps
    least = Fraction(SMALLEST_CAP_STEPS, size.steps)
    found = set()
    for part in text.split(","):
        try:
            # "1e99999999" would be worked out, for hours.
            share = Fraction("" if "e" in part.lower() else part.strip())
        except (ValueError, ZeroDivisionError):
            raise ConfigError(
                f"--caps names {part.strip()!r}; give fractions such as 1/4,1/16"
            ) from None
        if not least <= share < 1:
            raise ConfigError(
                f"--caps names {part.strip()}; choose shares from {least} "
                f"({SMALLEST_CAP_STEPS} of {size.steps} steps) to below 1"
            )
        found.add(share)
    return tuple(sorted(found, reverse=True))


def _folder(text: str) -> Path:
    """Make the folder and see that files and plots can be written."""
    if not text.strip():
        raise ConfigError("--out is empty; name a folder, . for this one")
    try:
        path = Path(text).expanduser()
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~somebody has no home
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"--out {text} cannot be made: {reason}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {text} cannot be written to; choose another folder")
    for file in path.glob("memory*"):
        ours = file.suffix in (".csv", ".gz", ".md", ".png")
        if ours and not (file.is_file() and os.access(file, os.W_OK)):
            raise ConfigError(f"--out: {file} cannot be overwritten; choose another folder")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--out needs matplotlib for its plots: pip install matplotlib")
    return path
