"""One short descriptor per token for all layers and heads together: a random projection.

With m, sigma the mean and the root mean square of |x - m| of each layer and head, taken at the
first compression of a stream and kept, W random signs / sqrt(d), and beta the share of the values,

    f = W' [ sqrt((1 - beta) / LH) * (k - m_k) / sigma_k,  sqrt(beta / LH) * (v - m_v) / sigma_v ]

over all layers and heads, k without RoPE. |f_x - f_y|^2 then is about the mean over heads of the
squared distance of two tokens: some 2 for two tokens drawn at random, some 0 for two looks at the
same thing. Projected to d numbers it is right to about sqrt(2 / d) of itself, small distances too,
so that what is near stays near (Johnson and Lindenstrauss).

Only new tokens are projected; their descriptors follow them, 4 d bytes a token. All that a policy
asks of them then costs next to nothing, where comparing all keys head by head would cost seconds.

Distances, not cosines: where a picture hardly changes, what is left beside the mean is noise, and
at unit length one noise is as far from another as one object from another.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .base import VideoTokens

_TINY = 1e-12


class _Projection:
    """Scale and project the keys, or the values, of all heads; the scale is that of the first."""

    def __init__(self, weight: float, dim: int, seed: int) -> None:
        self._weight, self._dim, self._seed = weight, dim, seed
        self._layers: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def project(self, layer: int, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum over heads of the projected vectors [H, n, D], and their mean length.

        Both float32, [n, d] and [n], the length in units of sigma.
        """
        vectors = vectors.float()
        if layer not in self._layers:
            self._layers[layer] = self._start(layer, vectors)
        mean, scale, matrix = self._layers[layer]
        lengths = torch.linalg.vector_norm(vectors, dim=-1) * scale.squeeze(-1)
        centred = (vectors - mean).mul_(scale)
        return centred.transpose(0, 1).flatten(1) @ matrix, lengths.mean(0)

    def _start(self, layer: int, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n_heads, _, dim = vectors.shape
        sound = vectors.isfinite().all(-1, keepdim=True)
        count = sound.sum(1, keepdim=True).clamp_min(1)
        mean = vectors.where(sound, 0.0).sum(1, keepdim=True) / count
        squares = (vectors - mean).where(sound, 0.0).square().sum((1, 2), keepdim=True)
        scale = (squares / count).clamp_min(_TINY).rsqrt()
        # On the CPU, so that every device draws the same signs.
        random = torch.Generator().manual_seed(2 * layer + self._seed)
        signs = torch.randint(0, 2, (n_heads * dim, self._dim), generator=random) * 2 - 1
        matrix = signs.to(vectors.device, torch.float32) * (self._weight / math.sqrt(self._dim))
        return mean, scale, matrix


class Sketch:
    """Descriptors and value norms of the stored tokens of one stream."""

    def __init__(self, value_share: float, dim: int, n_heads: int) -> None:
        """Start a stream; `n_heads` counts the heads of all layers."""
        self._n_heads = n_heads
        self._keys = _Projection(math.sqrt((1 - value_share) / n_heads), dim, 0)
        self._values = _Projection(math.sqrt(value_share / n_heads), dim, 1)
        self._features: Tensor | None = None
        self._norms: Tensor | None = None

    def update(self, tokens: VideoTokens) -> tuple[Tensor, Tensor, int]:
        """Describe the new tokens; return features [N, d], value norms [N], how many were known.

        Norms are the mean over heads of |v| / sigma_v. All float32; not finite where a key or a
        value of the token is not finite in any head.
        """
        n_known = 0 if self._features is None else self._features.shape[0]
        features, norms = [], []
        for layer in range(tokens.shape[0]):
            keys = tokens.keys(slice(layer, layer + 1), "content")[0, :, n_known:]
            projected, _ = self._keys.project(layer, keys)
            more, lengths = self._values.project(layer, tokens.values[layer, :, n_known:])
            features.append(projected + more)
            norms.append(lengths)
        new, lengths = torch.stack(features).sum(0), torch.stack(norms).mean(0)
        if self._features is not None and self._norms is not None:
            new = torch.cat([self._features, new])
            lengths = torch.cat([self._norms, lengths])
        self._features, self._norms = new, lengths
        return new, lengths, n_known

    def follow(self, slots: Tensor) -> None:
        """Keep what is known of the tokens at `slots`, int64 [keep], in that order."""
        if self._features is not None and self._norms is not None:
            self._features, self._norms = self._features[slots], self._norms[slots]
