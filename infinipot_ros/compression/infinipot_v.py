"""InfiniPot-V: TaR and VaN combined under a hard cap (arXiv 2506.15745v2, Algorithm 1).

1. The last r steps are kept whole, r = max(1, round(recent_ratio * M / tokens_per_step)).
2. TaR picks round(tar_ratio * C) tokens, the recent ones counted in.
3. VaN fills up to C from what TaR did not pick.

Where round(tar_ratio * C) is smaller than the recent steps, these win and VaN gets what is left.
Where they alone exceed C, the configuration is refused by `check`; should a change of grid bring
that about in mid-stream, the newest C tokens stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from .base import KEY_SPACES, CompressionPolicy, PolicyError, VideoTokens
from .layout import Layout, check_recent_steps, recent_step_count
from .parameters import check_choice, check_flag, check_ratio
from .tar import TAR_REFERENCES, tar_scores
from .topk import check_keep, mask_to_slots, top_mask
from .van import choose_kernels, pool_layers, unpooled, value_norms


@dataclass
class InfiniPotV(CompressionPolicy):
    """Keep the recent steps, then what has changed (TaR), then what carries much (VaN).

    Attributes:
        tar_ratio: alpha in [0, 1], the share of C that TaR picks, recent steps counted in.
        recent_ratio: in (0, 1), the share of M whose steps are kept whole.
        key_space: "content" compares keys without RoPE, so that age does not pass for change;
            "rotated" compares them as stored, the paper's offline setting.
        tar_reference: "recent" compares with the mean of the recent steps, "previous" with the
            step before the token's own.
        pooling: smooth VaN over the neighbourhood, with a kernel per layer that is chosen at the
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
        check_recent_steps(
            self.recent_ratio,
            max_tokens=max_tokens,
            target_tokens=target_tokens,
            tokens_per_step=tokens_per_step,
        )

    def choose(self, tokens: VideoTokens, keep: int) -> Tensor:
        """Return the surviving slots, int64 [L, H, keep]; see the base class."""
        n_tokens = tokens.shape[-1]
        check_keep(keep, n_tokens)
        if keep == 0:
            return tokens.steps[..., :0].clone()
        recent_steps = recent_step_count(
            self.recent_ratio, max_tokens=tokens.max_tokens, tokens_per_step=tokens.tokens_per_step
        )
        layout = Layout.of(tokens, recent_steps)
        protected = layout.protected(keep)
        share = round(self.tar_ratio * keep)
        chosen = protected
        if share > layout.fewest_recent:
            chosen = protected | self._top_by_tar(tokens, layout, protected, share)
        if share < keep:
            chosen = top_mask(self._van(tokens, layout).masked_fill(chosen, torch.inf), keep)
        return mask_to_slots(chosen, keep)

    def reset(self) -> None:
        """Forget the pooling kernels; the next stream chooses its own."""
        self._kernels = None

    def _top_by_tar(
        self, tokens: VideoTokens, layout: Layout, protected: Tensor, share: int
    ) -> Tensor:
        """Mark `share` tokens of each head, the protected ones before others, bool [L, H, N]."""
        scores = tar_scores(tokens, layout, key_space=self.key_space, reference=self.tar_reference)
        return top_mask(scores.masked_fill(protected, torch.inf), share)

    def _van(self, tokens: VideoTokens, layout: Layout) -> Tensor:
        """Return VaN scores, float32 [L, H, N]."""
        norms = value_norms(tokens)
        if not self.pooling:
            return unpooled(norms)
        if self._kernels is None:
            self._kernels = choose_kernels(norms)
        if len(self._kernels) != norms.shape[0]:
            raise PolicyError(
                f"pooling kernels were chosen for {len(self._kernels)} layers, these tokens have "
                f"{norms.shape[0]}: give each stream its own policy, or reset() between streams"
            )
        return pool_layers(
            norms, tokens.steps, layout.patches, grid=layout.grid, kernels=self._kernels
        )


@dataclass
class Tar(InfiniPotV):
    """TaR alone: recent steps, then what has changed (`infinipot_v` with tar_ratio = 1)."""

    name: ClassVar[str] = "tar"
    tar_ratio: float = field(default=1.0, init=False)
    pooling: bool = field(default=False, init=False)


@dataclass
class Van(InfiniPotV):
    """VaN alone: recent steps, then what carries much (`infinipot_v` with tar_ratio = 0)."""

    name: ClassVar[str] = "van"
    tar_ratio: float = field(default=0.0, init=False)
    key_space: str = field(default="content", init=False)
    tar_reference: str = field(default="recent", init=False)
