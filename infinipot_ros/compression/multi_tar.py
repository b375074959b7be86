"""Multi-reference TaR: unlike the present view of its patch and the patches around, ever since.

With u_q the mean of the unit keys of the recent steps at patch q (see `tar.py`), p the patch of an
older token x, and the maximum over q at most `reach` rows and columns away,

    s_now(x) = -max over q of <k_x / |k_x|, u_q>,

and, where `lasting`, s(x) is the lowest s_now(x) of all compressions since x was recent: every view
that has come since is a reference, not only the present one. A room that was looked at again is
redundant even while the robot looks at another; an object that has not come back is not. Views need
not be stored for that: the lowest score follows its token.

With reach 0 and not lasting, this is TaR, but for scores rounded to a grid of 2**-12.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from .base import KEY_SPACES, CompressionPolicy, VideoTokens
from .layout import Layout, check_recent_steps, recent_step_count
from .parameters import MOST, check_choice, check_flag, check_integer, check_ratio
from .similarity import on_grid
from .smoothing import smooth_over_heads
from .tar import UNLIKE, finish_scores, key_lengths, mean_unit_keys
from .topk import check_keep, mask_to_slots, top_mask


@dataclass
class MultiTar(CompressionPolicy):
    """Keep the recent steps, then what no view has resembled since.

    Attributes:
        recent_ratio: in (0, 1), the share of M whose steps are kept whole.
        reach: rows and columns, 0 or more, within which a view may have moved.
        lasting: remember the lowest score of each token instead of looking at the present only.
        key_space: "content" compares keys without RoPE, "rotated" as stored.
        smoothing: in [0, 1], how far a token's rank is drawn to the mean over all layers and heads
            that store it. At 0 every head decides alone; at 1 all hold the same tokens.
    """

    name: ClassVar[str] = "multi_tar"
    recent_ratio: float = 0.125
    reach: int = 1
    lasting: bool = True
    key_space: str = "content"
    smoothing: float = 0.0
    _lowest: Tensor | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_ratio("recent_ratio", self.recent_ratio, closed=False)
        check_integer("reach", self.reach, low=0, high=MOST)
        check_flag("lasting", self.lasting)
        check_choice("key_space", self.key_space, KEY_SPACES)
        check_ratio("smoothing", self.smoothing, closed=True)

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
        if n_tokens == 0:
            return tokens.steps.clone()
        recent_steps = recent_step_count(
            self.recent_ratio, max_tokens=tokens.max_tokens, tokens_per_step=tokens.tokens_per_step
        )
        layout = Layout.of(tokens, recent_steps)
        protected = layout.protected(keep)
        lowest = self._update(tokens, layout)
        scores = lowest
        if self.smoothing > 0:
            scores = smooth_over_heads(scores, tokens.steps, layout, self.smoothing)
        self._lowest = lowest
        return mask_to_slots(top_mask(scores.masked_fill(protected, torch.inf), keep), keep)

    def settle(self, slots: Tensor) -> None:
        """Keep the scores of what stays; see the base class."""
        if self._lowest is not None:
            self._lowest = self._lowest.gather(-1, slots)

    def reset(self) -> None:
        """Forget the scores of the stream's tokens."""
        self._lowest = None

    def _update(self, tokens: VideoTokens, layout: Layout) -> Tensor:
        """Return s(x), float32 [L, H, N], -inf where a token is broken, UNLIKE while recent."""
        now = multi_tar_scores(tokens, layout, reach=self.reach, key_space=self.key_space)
        now = on_grid(now).where(~layout.recent | ~now.isfinite(), UNLIKE)
        if self.lasting and self._lowest is not None:
            n_known = self._lowest.shape[-1]
            now[..., :n_known] = now[..., :n_known].minimum(self._lowest)
        return now


def multi_tar_scores(tokens: VideoTokens, layout: Layout, *, reach: int, key_space: str) -> Tensor:
    """Return s_now(x) of every token, float32 [L, H, N]; see `MultiTar` for the parameters.

    Temporaries: the keys of a layer in float32, and the products [H, N, P] of each with the P mean
    keys of its head. An older token whose head has no recent view near scores UNLIKE.
    """
    scores = []
    near = _neighbours(layout.grid, reach, tokens.values.device)
    for layer in range(tokens.shape[0]):
        keys = tokens.keys(slice(layer, layer + 1), key_space)[0]
        tail = slice(keys.shape[1] - layout.most_recent, None)
        means, known = mean_unit_keys(
            keys[:, tail],
            tokens.steps[layer, :, tail] - layout.oldest_recent,
            layout.patches[layer, :, tail],
            n_steps=layout.recent_steps,
            n_patches=layout.n_patches,
        )
        lengths = key_lengths(keys)
        cosines = (keys.float() @ means.mT) / lengths.unsqueeze(-1)
        compared = near[layout.patches[layer]] & known.unsqueeze(1)
        best = cosines.masked_fill(~compared, -torch.inf).amax(-1)
        scores.append(finish_scores(best, compared.any(-1), lengths))
    return torch.stack(scores)


def _neighbours(grid: tuple[int, int], reach: int, device: torch.device) -> Tensor:
    """Return which patches are at most `reach` rows and columns apart, bool [P, P]."""
    place = torch.arange(grid[0] * grid[1], device=device)
    row, col = place // grid[1], place % grid[1]
    apart = (row[:, None] - row).abs().maximum((col[:, None] - col).abs())
    return apart <= reach
