"""What the language model learns beside answering, so that answering is easy to learn."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from infinipot_ros.roomworld.training.batches import Batch
from infinipot_ros.roomworld.training.facts import PROPERTIES
from infinipot_ros.roomworld.vocabulary import COLORS, KINDS, MAX_COUNT, ROOMS

_SHARPNESS = 10.0
_KIND_CAME = 3.0
"""Weight of the kinds that came before a token: few did."""
_NOWHERE = 0.1
"""Weight of objects that were in no other room before: most were in none."""


class HistoryTask(nn.Module):
    """Tell at object tokens what came before them."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.kinds_head = nn.Linear(hidden, len(KINDS))
        self.room_head = nn.Linear(hidden, len(ROOMS) + 1)
        self.count_head = nn.Linear(hidden, MAX_COUNT + 1)
        for head in (self.kinds_head, self.room_head, self.count_head):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, tapped: Tensor, later: Tensor, history: Tensor) -> Tensor:
        """Predict at object tokens what `history_labels` say.

        The kinds that came earlier and the object's other room from `tapped`, [b, n, hidden], the
        number of kinds from `later`.
        """
        things = history[..., -1] >= 0
        if not bool(things.any()):
            return tapped.new_zeros(()).float()
        labels = history[things].long()
        early, late = (F.rms_norm(t[things].float(), (t.shape[-1],)) for t in (tapped, later))
        weights = torch.ones(len(ROOMS) + 1)
        weights[-1] = _NOWHERE
        room = F.cross_entropy(self.room_head(early), labels[:, -2], weight=weights)
        counted = F.cross_entropy(self.count_head(late), labels[:, -1])
        came = labels[:, : len(KINDS)]
        each = F.binary_cross_entropy_with_logits(
            self.kinds_head(early),
            came.clamp(min=0).float(),
            reduction="none",
            pos_weight=torch.tensor(_KIND_CAME),
        )
        return each[came >= 0].mean() + 0.3 * counted + room


class FactsTask(nn.Module):
    """Tell at the last word of a name all that was seen of the thing, whatever is asked."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.head = nn.Linear(hidden, sum(map(len, PROPERTIES)) + len(KINDS))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tapped: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss of the properties and of the kinds that came before the thing."""
        asked = (batch.facts >= 0).any(-1)
        if not bool(asked.any()):
            return tapped.new_zeros(()).float()
        states = state_at(tapped, batch.referent_at, asked)
        facts = batch.facts[asked]
        parts = self.head(F.rms_norm(states, (states.shape[-1],))).split(
            [*map(len, PROPERTIES), len(KINDS)], -1
        )
        losses = [
            F.cross_entropy(logits[known], column[known])
            for logits, column in zip(
                parts[:-1], facts[:, : len(PROPERTIES)].unbind(-1), strict=True
            )
            if bool((known := column >= 0).any())
        ]
        came = facts[:, len(PROPERTIES) :]
        if bool((came >= 0).any()):
            each = F.binary_cross_entropy_with_logits(
                parts[-1], came.clamp(min=0).float(), reduction="none"
            )
            losses.append(2.0 * each[came >= 0].mean())
        return torch.stack(losses).mean()


def naming_loss(
    word_embeddings: Tensor, tapped: Tensor, batch: Batch, word_ids: Mapping[str, int]
) -> Tensor:
    """Find all words that name a thing in its last one, along the directions of the words.

    Tokens that show the thing are sums of the same directions: so they can be found.
    """
    words = F.normalize(word_embeddings, dim=-1)
    losses = []
    for column, group in enumerate((KINDS, COLORS, ROOMS)):
        ids = torch.tensor([word_ids[word] for word in group])
        asked = batch.named[..., column] >= 0
        if bool(asked.any()):
            states = F.normalize(state_at(tapped, batch.referent_at, asked), dim=-1)
            targets = (batch.named[..., column][asked][:, None] == ids).long().argmax(-1)
            losses.append(F.cross_entropy(_SHARPNESS * F.linear(states, words[ids]), targets))
    return torch.stack(losses).sum() if losses else tapped.new_zeros(()).float()


def state_at(hidden: Tensor, index: Tensor, asked: Tensor) -> Tensor:
    """Pick the states [n, hidden] in float32 at `index` [b, q] where `asked`."""
    chosen = hidden.gather(1, index[..., None].expand(-1, -1, hidden.shape[-1]))
    return chosen[asked].float()
