"""SlabCache behind the cache interface of transformers."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from infinipot_ros.core.cache import SlabCache


class _SlabLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not typed
    """One decoder layer of a slab."""

    def __init__(self, slab: SlabCache, layer: int) -> None:
        super().__init__()
        self._slab = slab
        self._layer = layer
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the slab was allocated when it was made."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write ``[1, H, n, D]`` behind the committed slots; return all slots up to there.

        What is returned is on the device of the layer.  Where a model is spread over several, the
        slab is on the first, and the layers elsewhere copy all their keys and values over at every
        pass: ``2 H (length + n) D`` numbers a layer, for each token of an answer too.  On its own
        device a layer gets views, and nothing is copied.
        """
        keys, values = self._slab.write(self._layer, key_states[0], value_states[0])
        device = key_states.device
        return keys.unsqueeze(0).to(device), values.unsqueeze(0).to(device)

    def get_seq_length(self) -> int:
        """Return the number of committed slots."""
        return self._slab.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return key length and offset: slots are masked, never positions."""
        return self._slab.length + query_length, 0

    def get_max_length(self) -> int:
        """Return the number of slots."""
        return self._slab.capacity


def as_library_cache(slab: SlabCache) -> Cache:
    """Return a transformers cache that reads and writes the slab."""
    return Cache(layers=[_SlabLayer(slab, layer) for layer in range(slab.shape.layers)])
