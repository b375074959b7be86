"""Greedy decoding over a SlabCache, with text as it comes and a stop between any two tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.core.cache import SlabCache
from infinipot_ros.core.types import FinishReason

TextSink = Callable[[str], None]
StopCheck = Callable[[], FinishReason | None]


@dataclass(frozen=True)
class Decoded:
    """Outcome of decoding.

    Attributes:
        text: the answer so far when decoding ended.
        confidence: mean probability of the answer's tokens, 0 to 1.
        n_tokens: tokens of the answer.
        finish_reason: why decoding ended.
        first_token_at: ``time.monotonic()`` when the first token was known.
    """

    text: str
    confidence: float
    n_tokens: int
    finish_reason: FinishReason
    first_token_at: float


def decode_greedily(
    adapter: ModelAdapter,
    cache: SlabCache,
    question: Tensor,
    *,
    first_position: int,
    max_new_tokens: int,
    on_text: TextSink | None,
    should_stop: StopCheck | None,
) -> Decoded:
    """Append a question to the cache and decode its answer.

    The cache grows by the question and the answer; the caller rewinds it.

    Args:
        adapter: the model.
        cache: committed slots are what the answer rests on.
        question: embeddings ``[n, hidden]`` from the end of the video to the start of the answer.
        first_position: position of the first of them, on every axis.
        max_new_tokens: longest answer, tokens.
        on_text: called after each token with the text so far.
        should_stop: polled before each token.

    Returns:
        The answer with its confidence.
    """
    device, axes = adapter.shape.device, adapter.shape.axes
    embeddings, position = question, first_position
    answer: list[int] = []
    probabilities: list[float] = []
    first_token_at = 0.0
    finish: FinishReason = "length"
    while True:
        stop = should_stop() if should_stop is not None else None
        if stop is not None:
            finish = stop
            break
        n = len(embeddings)
        positions = torch.arange(position, position + n, device=device).expand(axes, -1)
        hidden = adapter.prefill(embeddings, positions, cache)
        cache.commit_text(n)
        position += n
        logits = adapter.logits(hidden[-1:])[0]
        token = int(logits.argmax())
        if not answer:
            first_token_at = time.monotonic()
        if token in adapter.stop_ids:
            finish = "stop"
            break
        answer.append(token)
        probabilities.append(float(torch.softmax(logits, -1)[token]))
        if on_text is not None:
            # A character cut in the middle shows as U+FFFD until its last byte is decoded.
            on_text(adapter.decode(answer).rstrip("\ufffd"))
        if len(answer) == max_new_tokens:
            break
        embeddings = adapter.embed(torch.tensor([token], device=device))
    return Decoded(
        text=adapter.decode(answer).strip(),
        confidence=sum(probabilities) / len(probabilities) if probabilities else 0.0,
        n_tokens=len(answer),
        finish_reason=finish,
        first_token_at=first_token_at,
    )
