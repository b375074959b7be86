"""Put the text of the steps of a block between their patches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from infinipot_ros.core.adapter import Deepstack, EncodedBlock, StepText
from infinipot_ros.core.numbering import BlockLayout


class Interleaved(NamedTuple):
    """A block as the decoder takes it.

    Attributes:
        embeddings: ``[n, hidden]``, for each step its text before, its patches, its text after.
        layout: what they are.
        deepstack: visual features of the patches; None where the model has none.
    """

    embeddings: Tensor
    layout: BlockLayout
    deepstack: Deepstack | None


def interleave(
    encoded: EncodedBlock, texts: Sequence[StepText], embed: Callable[[Tensor], Tensor]
) -> Interleaved:
    """Lay out a block.

    Args:
        encoded: patches from the vision encoder.
        texts: of each step.
        embed: token ids int64 ``[n]`` to embeddings ``[n, hidden]``.
    """
    layout = BlockLayout(
        encoded.rows, encoded.cols, tuple((len(text.before), len(text.after)) for text in texts)
    )
    device = encoded.embeddings.device
    embeddings = encoded.embeddings
    video = torch.ones(layout.tokens, dtype=torch.bool, device=device)
    ids = [token for text in texts for token in (*text.before, *text.after)]
    if ids:
        words = embed(torch.tensor(ids, device=device)).to(embeddings.dtype)
        sizes = [size for pair in layout.texts for size in pair]
        text = iter(torch.split(words, sizes))
        parts: list[Tensor] = []
        for patches in torch.split(embeddings, layout.rows * layout.cols):
            parts += [next(text), patches, next(text)]
        embeddings = torch.cat(parts)
        at = 0
        for before, after in layout.texts:
            end = at + before + layout.rows * layout.cols
            video[at : at + before] = False
            video[end : end + after] = False
            at = end + after
    deepstack = Deepstack(video, encoded.deepstack) if encoded.deepstack else None
    return Interleaved(embeddings, layout, deepstack)
