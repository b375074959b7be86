"""`infinipot bench compression`: our selection against a literal reading of the equations.

Both take turns on the same random tensors, in whole frames as at a first compression. Times are
medians; the ratio is the median over the pairs, and beside it the ratio of the fastest of each,
which other work on the machine disturbs least. The baseline, `infinipot_ros.bench.literal`, builds
the product of every older with every recent key; it gets the pooling kernels for nothing. The run
fails when the two disagree, so that a figure is never about another computation.

The last line has no baseline: a later compression, whose tokens are what is left of a stream eight
times as long, in other places in every head. Reshaped to frames, as research code does, such tokens
would be compared with other patches.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from infinipot_ros.bench import literal
from infinipot_ros.bench.measure import machine, print_table, save, seconds
from infinipot_ros.compression import VideoTokens, make_policy
from infinipot_ros.compression.layout import Layout, recent_step_count
from infinipot_ros.compression.tar import tar_scores
from infinipot_ros.compression.topk import mask_to_slots, top_mask
from infinipot_ros.compression.van import choose_kernels, pool_layers, value_norms

_TAR_RATIO, _RECENT_RATIO = 0.5, 0.125
_LONGER = 8
_SCORE_TOLERANCE = 1e-4
_SLOT_TOLERANCE = 1e-3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--layers", type=int, default=28, help="layers (28)")
    parser.add_argument("--heads", type=int, default=4, help="KV heads (4)")
    parser.add_argument("--tokens", type=int, default=4096, help="stored tokens, M (4096)")
    parser.add_argument("--dim", type=int, default=128, help="head dimension (128)")
    parser.add_argument("--keep", type=int, default=3072, help="tokens to keep, C (3072)")
    parser.add_argument("--per-step", type=int, default=64, help="tokens of a step (64)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (cpu)")
    parser.add_argument(
        "--dtype", default="float32", choices=("float32", "bfloat16", "float16"), help="(float32)"
    )
    parser.add_argument("--repeats", type=int, default=7, help="paired repeats of a figure (7)")
    parser.add_argument("--out", metavar="DIR", help="write compression.csv and .json there")


def run(args: argparse.Namespace) -> int:
    """Measure, print and save; return 0, 1 when the two disagree, 2 for sizes that clash."""
    problem = _clash(args)
    if problem:
        print(f"infinipot bench compression: {problem}", file=sys.stderr)
        return 2
    case = _Case.random(args)
    context: dict[str, object] = {
        "shape": f"[{args.layers}, {args.heads}, {args.tokens}, {args.dim}] {args.dtype}",
        "keep": args.keep,
        "tokens per step": args.per_step,
        "recent steps": case.recent_steps,
        # Threads that spin while they wait stall both sides by turns where other work fills the
        # cores: ratios then mean little. PASSIVE lets them sleep.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
        **machine(case.keys.device),
    }
    print(", ".join(f"{key} {value}" for key, value in context.items()))
    difference, moved = _disagreement(case)
    print(f"scores differ by at most {difference:.1e}, {moved:.1e} of the slots differ")
    if not (difference <= _SCORE_TOLERANCE and moved <= _SLOT_TOLERANCE):
        print("infinipot bench compression: the two disagree, no figures", file=sys.stderr)
        return 1
    rows = _figures(case, args.repeats)
    print_table(rows)
    context |= {"largest score difference": difference, "share of other slots": moved}
    save(args.out, "compression", rows, context)
    return 0


def _clash(args: argparse.Namespace) -> str:
    """Name what is wrong with the sizes; empty when nothing is."""
    for name in ("layers", "heads", "tokens", "dim", "keep", "per_step", "repeats"):
        if getattr(args, name) < 1:
            return f"--{name.replace('_', '-')} {getattr(args, name)}: choose 1 or more"
    if args.tokens % args.per_step:
        return (
            f"--tokens {args.tokens} is not a multiple of --per-step {args.per_step}: make it one"
        )
    recent = args.per_step * recent_step_count(
        _RECENT_RATIO, max_tokens=args.tokens, tokens_per_step=args.per_step
    )
    if not recent <= round(_TAR_RATIO * args.keep) < args.keep < args.tokens:
        return (
            f"--keep {args.keep}: choose a number below --tokens {args.tokens} of which half "
            f"holds the {recent} recent tokens"
        )
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        return f"--device {args.device}: torch finds no CUDA device here, choose cpu"
    return ""


@dataclass(frozen=True)
class _Case:
    """The same stored tokens for both: tensors [L, H, N, D] and how they divide into frames."""

    keys: Tensor
    values: Tensor
    grid: tuple[int, int]
    recent_steps: int
    keep: int

    @classmethod
    def random(cls, args: argparse.Namespace) -> _Case:
        rows = max(n for n in range(1, math.isqrt(args.per_step) + 1) if args.per_step % n == 0)
        noise = torch.Generator(args.device).manual_seed(0)
        keys, values = (
            torch.randn(
                (args.layers, args.heads, args.tokens, args.dim),
                generator=noise,
                device=args.device,
                dtype=getattr(torch, args.dtype),
            )
            for _ in range(2)
        )
        recent = recent_step_count(
            _RECENT_RATIO, max_tokens=args.tokens, tokens_per_step=args.per_step
        )
        return cls(keys, values, (rows, args.per_step // rows), recent, args.keep)

    @property
    def per_step(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def share(self) -> int:
        return round(_TAR_RATIO * self.keep)

    def frames(self, tensor: Tensor) -> Tensor:
        """Reshape one layer [H, N, D] to [H, F, P, D]."""
        return tensor.reshape(tensor.shape[0], -1, self.per_step, tensor.shape[-1])

    def tokens(self, codes: Tensor) -> VideoTokens:
        """Show the tensors as tokens of the given codes, step * P + patch, int64 [L, H, N]."""
        patches = codes % self.per_step
        return VideoTokens(
            values=self.values,
            steps=codes // self.per_step,
            rows=patches // self.grid[1],
            cols=patches % self.grid[1],
            max_tokens=self.keys.shape[2],
            tokens_per_step=self.per_step,
            key_source=lambda layers, _: self.keys[layers],
        )

    def first(self) -> VideoTokens:
        """Return the tokens of a first compression: whole frames."""
        codes = torch.arange(self.keys.shape[2], device=self.keys.device)
        return self.tokens(codes.expand(self.keys.shape[:3]).contiguous())

    def later(self) -> VideoTokens:
        """Return the tokens of a later one: whole recent steps, before them what is left."""
        layers, heads, n_tokens, _ = self.keys.shape
        device = self.keys.device
        n_recent = self.recent_steps * self.per_step
        n_past = _LONGER * n_tokens
        noise = torch.Generator(device).manual_seed(1)
        draw = torch.rand((layers, heads, n_past), generator=noise, device=device)
        past = draw.topk(n_tokens - n_recent).indices.sort().values
        recent = torch.arange(n_past, n_past + n_recent, device=device)
        return self.tokens(torch.cat([past, recent.expand(layers, heads, -1)], -1))


def _literal_scores(case: _Case, kernels: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    return _literal_tar(case), _literal_van(case, kernels)


def _literal_tar(case: _Case) -> list[Tensor]:
    return [literal.tar_scores(case.frames(keys), case.recent_steps) for keys in case.keys]


def _literal_van(case: _Case, kernels: tuple[int, ...]) -> list[Tensor]:
    return [
        literal.van_scores(case.frames(values), case.grid, kernel)
        for values, kernel in zip(case.values, kernels, strict=True)
    ]


def _literal_choice(case: _Case, tar: list[Tensor], van: list[Tensor]) -> Tensor:
    chosen = [
        literal.choose(*scores, case.share, case.keep) for scores in zip(tar, van, strict=True)
    ]
    return torch.stack(chosen)


def _our_van(tokens: VideoTokens, layout: Layout) -> Tensor:
    norms = value_norms(tokens)
    return pool_layers(
        norms, tokens.steps, layout.patches, grid=layout.grid, kernels=choose_kernels(norms)
    )


def _our_choice(case: _Case, layout: Layout, tar: Tensor, van: Tensor) -> Tensor:
    chosen = top_mask(tar.masked_fill(layout.recent, torch.inf), case.share)
    return mask_to_slots(top_mask(van.masked_fill(chosen, torch.inf), case.keep), case.keep)


def _our_tar(tokens: VideoTokens, layout: Layout) -> Tensor:
    return tar_scores(tokens, layout, key_space="content", reference="recent")


def _policy_select(case: _Case, tokens: VideoTokens) -> Tensor:
    policy = make_policy("infinipot_v", {"tar_ratio": _TAR_RATIO, "recent_ratio": _RECENT_RATIO}, 0)
    return policy.select(tokens, case.keep)


def _disagreement(case: _Case) -> tuple[float, float]:
    """Return the largest difference of scores and the share of slots that only one keeps."""
    tokens = case.first()
    layout = Layout.of(tokens, case.recent_steps)
    kernels = choose_kernels(value_norms(tokens))
    tar, van = _literal_scores(case, kernels)
    n_older = case.keys.shape[2] - case.recent_steps * case.per_step
    pairs = (
        (_our_tar(tokens, layout)[..., :n_older], torch.stack(tar).flatten(2)),
        (_our_van(tokens, layout), torch.stack(van).flatten(2)),
    )
    difference = max(float((a - b).abs().max()) for a, b in pairs)
    theirs, ours = _literal_choice(case, tar, van), _policy_select(case, tokens)
    kept = torch.zeros(case.keys.shape[:3], dtype=torch.bool, device=ours.device)
    found = kept.scatter(-1, theirs, True).gather(-1, ours)
    return difference, 1 - float(found.double().mean())


def _figures(case: _Case, repeats: int) -> list[dict[str, str]]:
    """Time the whole selection and its parts, in turns with the baseline."""
    tokens, later = case.first(), case.later()
    layout = Layout.of(tokens, case.recent_steps)
    kernels = choose_kernels(value_norms(tokens))
    tar, van = _literal_scores(case, kernels)
    our_tar, our_van = _our_tar(tokens, layout), _our_van(tokens, layout)
    pairs: list[tuple[str, Callable[[], object] | None, Callable[[], object]]] = [
        (
            "whole selection",
            lambda: _literal_choice(case, *_literal_scores(case, kernels)),
            lambda: _policy_select(case, tokens),
        ),
        ("  TaR scores", lambda: _literal_tar(case), lambda: _our_tar(tokens, layout)),
        ("  VaN scores", lambda: _literal_van(case, kernels), lambda: _our_van(tokens, layout)),
        (
            "  choice",
            lambda: _literal_choice(case, tar, van),
            lambda: _our_choice(case, layout, our_tar, our_van),
        ),
        ("later compression", None, lambda: _policy_select(case, later)),
    ]
    return [_row(case, repeats, *pair) for pair in pairs]


def _row(
    case: _Case,
    repeats: int,
    what: str,
    theirs: Callable[[], object] | None,
    ours: Callable[[], object],
) -> dict[str, str]:
    device = case.keys.device
    for warm_up in (theirs, ours):
        if warm_up is not None:
            warm_up()
    slow, fast = [], []
    for _ in range(repeats):
        if theirs is not None:
            slow.append(seconds(theirs, device))
        fast.append(seconds(ours, device))
    ratios = [a / b for a, b in zip(slow, fast, strict=False)]
    return {
        "first compression": what,
        "literal ms": f"{1e3 * statistics.median(slow):.1f}" if slow else "",
        "ours ms": f"{1e3 * statistics.median(fast):.1f}",
        "literal / ours": f"{statistics.median(ratios):.1f}" if ratios else "",
        "fastest / fastest": f"{min(slow) / min(fast):.1f}" if slow else "",
    }
