"""TransformersAdapter: what the families of transformers models have in common."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from infinipot_ros.core.adapter import Deepstack, ModelAdapter
from infinipot_ros.core.cache import SlabCache
from infinipot_ros.core.errors import ModelError
from infinipot_ros.core.types import Turn
from infinipot_ros.models.cache_bridge import as_library_cache

# Cannot be typed, so they are found again whatever the template does.
_QUESTION, _ANSWER, _NEXT = (f"\x00{name}\x00" for name in ("question", "answer", "next"))


class TransformersAdapter(ModelAdapter):
    """Tokenizer, chat template, embedding, decoder and head of a transformers model.

    Args:
        name: the model's name as the user gave it.
        tokenizer: with a chat template that knows ``video`` items.
        decoder: the inner language model (without head, so that blocks do not pay for logits).
        head: hidden states to logits.
        stop_ids: token ids that end an answer.
        video_token: text of the token that stands for the video in the rendered template.
    """

    def __init__(
        self,
        name: str,
        *,
        tokenizer: Any,
        decoder: Any,
        head: Any,
        stop_ids: Sequence[int],
        video_token: str,
    ) -> None:
        self.name = name
        # Fast tokenizers hold settings that a call changes (split_special_tokens is one), and
        # questions are checked by their clients' threads while another is being answered.
        self._tokenizer_lock = threading.Lock()
        self._tokenizer = tokenizer
        self._decoder = decoder
        # transformers renamed the keyword in 5.21; 5.20 is the last that runs on Python 3.10.
        parameters = inspect.signature(decoder.forward).parameters
        self._cache_keyword = "cache" if "cache" in parameters else "past_key_values"
        self._head = head
        self._stop_ids = frozenset(stop_ids)
        self._video_token = video_token
        _, suffix = self._render(None)
        before, _, after = suffix.partition(_QUESTION)
        self._before, self._after = self._template_ids(before), self._template_ids(after)
        self._between: tuple[list[int], list[int]] | None = None

    @property
    def stop_ids(self) -> frozenset[int]:
        """Token ids that end an answer."""
        return self._stop_ids

    def prefix_ids(self, system_prompt: str | None) -> list[int]:
        """Return token ids from the start of the prompt up to the first video token."""
        prefix, _ = self._render(system_prompt)
        return self._template_ids(prefix)

    def question_ids(self, question: str, history: Sequence[Turn] = ()) -> list[int]:
        """Return token ids from the last video token up to the start of the answer."""
        ids = list(self._before)
        for turn in history:
            to_answer, to_question = self._turn_ids()
            ids += self._typed_ids(turn.question) + to_answer
            ids += self._typed_ids(turn.answer) + to_question
        return ids + self._typed_ids(question) + self._after

    def count_question_tokens(self, question: str) -> int:
        """Return how many tokens the question itself has."""
        return len(self._typed_ids(question))

    def template_tokens(self) -> int:
        """Return how many tokens the template adds around a question."""
        return len(self._before) + len(self._after)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of answer tokens, special tokens left out."""
        with self._tokenizer_lock:
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def embed(self, ids: Tensor) -> Tensor:
        """Return input embeddings ``[n, hidden]`` of token ids int64 ``[n]``."""
        embeddings: Tensor = self._decoder.get_input_embeddings()(ids)
        return embeddings

    def prefill(
        self,
        embeddings: Tensor,
        positions: Tensor,
        cache: SlabCache,
        deepstack: Deepstack | None = None,
    ) -> Tensor:
        """Run the decoder over new tokens; see :class:`ModelAdapter`."""
        # attention_mask stays None: the library then masks by slot, which is right after eviction;
        # a mask of the new tokens' ones would hide the memory without a word.
        output = self._decoder(
            inputs_embeds=embeddings.unsqueeze(0),
            position_ids=positions if len(positions) == 1 else positions.unsqueeze(1),
            use_cache=True,
            **{self._cache_keyword: as_library_cache(cache)},
            **self._deepstack_inputs(deepstack),
        )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits ``[n, vocabulary]`` of hidden states ``[n, hidden]``."""
        logits: Tensor = self._head(hidden).float()
        return logits

    def _deepstack_inputs(self, deepstack: Deepstack | None) -> dict[str, Any]:
        """Return what the decoder takes for visual features; families with any override it."""
        if deepstack is not None:
            raise ModelError(f"the decoder of {self.name!r} takes no visual features")
        return {}

    def _turn_ids(self) -> tuple[list[int], list[int]]:
        """Return the template's tokens from a question to its answer, and on to the next one."""
        if self._between is None:
            turns: list[dict[str, Any]] = [
                {"role": "user", "content": [{"type": "video"}, _text(_QUESTION)]},
                {"role": "assistant", "content": [_text(_ANSWER)]},
                {"role": "user", "content": [_text(_NEXT)]},
            ]
            try:
                text = self._apply_template(turns)
                _, _, rest = text.partition(_QUESTION)
                to_answer, found, rest = rest.partition(_ANSWER)
                to_question, also_found, _ = rest.partition(_NEXT)
            except Exception as error:  # a template is a program, and may raise what it likes
                raise ModelError(
                    f"the chat template of {self.name!r} takes no dialogue: {error}"
                ) from error
            if not (found and also_found):
                raise ModelError(f"the chat template of {self.name!r} drops turns of a dialogue")
            self._between = self._template_ids(to_answer), self._template_ids(to_question)
        return self._between

    def _apply_template(self, messages: list[dict[str, Any]]) -> str:
        text: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return text

    def _render(self, system_prompt: str | None) -> tuple[str, str]:
        """Return the prompt before and after the video, the question marked in the latter."""
        messages: list[dict[str, Any]] = []
        if system_prompt is not None:
            messages.append({"role": "system", "content": [_text(system_prompt)]})
        messages.append({"role": "user", "content": [{"type": "video"}, _text(_QUESTION)]})
        text = self._apply_template(messages)
        prefix, found, suffix = text.partition(self._video_token)
        if not found or _QUESTION not in suffix:
            raise ModelError(
                f"the chat template of {self.name!r} shows no {self._video_token} before the "
                "question; a template that takes video items is needed"
            )
        return prefix, suffix

    def _template_ids(self, text: str) -> list[int]:
        with self._tokenizer_lock:
            return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _typed_ids(self, text: str) -> list[int]:
        """Tokens of what a user typed: a template token in it is text, it cannot forge a role."""
        with self._tokenizer_lock:
            encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return list(encoded.input_ids)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def stop_ids_of(model: Any, tokenizer: Any) -> list[int]:
    """Return the token ids that end an answer, from the model's and the tokenizer's own files."""
    found: set[int] = set()
    for source in (model.generation_config, model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    if not found:
        raise ModelError("the model's files name no end-of-answer token (eos_token_id)")
    return sorted(found)


def rotary_axis(sections: Sequence[int], frequencies: int, device: torch.device) -> Tensor:
    """Return the position axis of each frequency for sectioned multimodal RoPE.

    Args:
        sections: frequencies of time, row and column, in this order.
        frequencies: D / 2, half the head dimension.
        device: where the result lives.

    Raises:
        ModelError: the sections do not add up.
    """
    if len(sections) != 3 or sum(sections) != frequencies:
        raise ModelError(
            f"mrope_section is {list(sections)}; three numbers with sum {frequencies} are needed"
        )
    return torch.repeat_interleave(torch.arange(3), torch.tensor(list(sections))).to(device)
