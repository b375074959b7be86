"""InfiniPot-V: TaR and VaN combined under a hard cap (arXiv 2506.15745v2, Algorithm 1).

1. The last r steps are protected: they are kept whole (r from `recent_ratio`).
2. TaR picks round(tar_ratio * C) tokens, the protected ones counted in it.
3. VaN fills up to C from what TaR did not pick.

Where round(tar_ratio * C) is smaller than the recent steps, the recent steps win and VaN gets what
is left. If a change of grid makes them exceed C in mid-stream, the newest C tokens stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from .base import KEY_SPACES, CompressionPolicy, PolicyError, VideoTokens
from .layout import Layout, recent_step_count
from .parameters import check_choice, check_flag, check_ratio
from .tar import tar_scores
from .topk import check_keep, mask_to_slots, top_mask
from .van import choose_kernels, pool_layers, value_norms, van_scores

TAR_REFERENCES = ("recent", "previous")


@dataclass
class InfiniPotV(CompressionPolicy):
    """Keep recent steps, then what changed (TaR), then what carries much (VaN).

    Attributes: tar_ratio: alpha in [0, 1], share of C that TaR picks, the recent steps included.
        recent_ratio: in (0, 1); r = max(1, round(recent_ratio * M / tokens_per_step)) steps are
        kept whole. key_space: "content" compares keys without RoPE, so that age does not pass for
        dissimilarity; "rotated"
            compares them as stored, the paper's offline setting.
        tar_reference: "recent" compares with the mean of the recent steps, "previous" with the step
            before.
        pooling: average VaN over the neighbourhood, with a kernel per layer that is chosen at the
            first compression of a stream and kept until `reset`.
    """

    name: ClassVar[str] = "infinipot_v"
    tar_ratio: float = 0.5
    recent_ratio: float = 0.125
    key_space: str = "content"
    tar_reference: str = "recent"
    pooling: bool = True
    _kernels: tuple[int, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_ratio("tar_ratio", self.tar_ratio, closed=True)
        check_ratio("recent_ratio", self.recent_ratio, closed=False)
        check_choice("key_space", self.key_space, KEY_SPACES)
        check_choice("tar_reference", self.tar_reference, TAR_REFERENCES)
        check_flag("pooling", self.pooling)

    def check(self, *, max_tokens: int, target_tokens: int, tokens_per_step: int) -> None:
        """Refuse recent steps that alone exceed what a compression keeps; see the base class."""
        steps = recent_step_count(
            self.recent_ratio, max_tokens=max_tokens, tokens_per_step=tokens_per_step
        )
        recent = steps * tokens_per_step
        if recent <= target_tokens:
            return
        clash = (
            f"recent_ratio={self.recent_ratio} protects {steps} recent steps of {tokens_per_step} tokens, "
            f"{recent} in all, but a compression keeps only {target_tokens} of max_tokens={max_tokens}"
        )
        most = target_tokens // tokens_per_step
        if most == 0:
            raise PolicyError(f"{clash}: raise max_tokens, or lower the resolution of the frames")
        raise PolicyError(
            f"{clash}: choose recent_ratio <= {most * tokens_per_step / max_tokens:.3g}, "
            "or raise max_tokens or retain_ratio"
        )

    def select(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the surviving slots, int64 [L, H, keep]; see the base class."""
        n_tokens = tokens.shape[-1]
        check_keep(keep, n_tokens)
        if n_tokens == 0:
            return torch.zeros_like(tokens.steps)
        recent_steps = recent_step_count(
            self.recent_ratio, max_tokens=tokens.max_tokens, tokens_per_step=tokens.tokens_per_step
        )
        layout = Layout.of(tokens, recent_steps)
        protected = layout.recent.clone()
        protected[..., : n_tokens - keep] = False
        picked = self._pick_by_tar(tokens, layout, protected, keep)
        scores = (
            self._van(tokens, layout)
            if self.tar_ratio < 1
            else torch.zeros_like(picked, dtype=torch.float32)
        )
        kept = top_mask(scores.masked_fill(picked, torch.inf), keep)
        return mask_to_slots(kept, keep)

    def reset(self) -> None:
        """Forget the pooling kernels; the next stream chooses its own."""
        self._kernels = None

    def _pick_by_tar(
        self, tokens: VideoTokens, layout: Layout, protected: Tensor, keep: int
    ) -> Tensor:
        """Mark the protected tokens and those that TaR adds to make round(tar_ratio * keep)."""
        quota = round(self.tar_ratio * keep)
        if quota <= layout.fewest_recent:
            return protected
        scores = tar_scores(tokens, layout, key_space=self.key_space, reference=self.tar_reference)
        return protected | top_mask(scores.masked_fill(protected, torch.inf), quota)

    def _van(self, tokens: VideoTokens, layout: Layout) -> Tensor:
        norms = value_norms(tokens)
        if not self.pooling:
            return van_scores(norms)
        if self._kernels is None:
            self._kernels = choose_kernels(norms)
        if len(self._kernels) != norms.shape[0]:
            raise PolicyError(
                f"pooling kernels were chosen for {len(self._kernels)} layers, but these tokens have "
                f"{norms.shape[0]}: use one policy per stream, or reset() between streams"
            )
        return pool_layers(
            norms, tokens.steps, layout.patches, grid=layout.grid, kernels=self._kernels
        )


@dataclass
class Tar(InfiniPotV):
    """TaR alone: recent steps, then what changed (`infinipot_v` at tar_ratio = 1)."""

    name: ClassVar[str] = "tar"
    tar_ratio: float = field(default=1.0, init=False)
    pooling: bool = field(default=False, init=False)


@dataclass
class Van(InfiniPotV):
    """VaN alone: recent steps, then what carries much (`infinipot_v` at tar_ratio = 0)."""

    name: ClassVar[str] = "van"
    tar_ratio: float = field(default=0.0, init=False)
    key_space: str = field(default="content", init=False)
    tar_reference: str = field(default="recent", init=False)
