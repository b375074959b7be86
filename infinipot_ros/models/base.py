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
from infinipot_ros.core.errors import ConfigError, ModelError, QuestionError
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
        prefix, suffix = self._render(None)
        before, _, after = suffix.partition(_QUESTION)
        self._before, self._after = self._template_ids(before), self._template_ids(after)
        self._check_rows([*self._template_ids(prefix), *self._before, *self._after])
        self._between: tuple[list[int], list[int]] | None = None

    @property
    def stop_ids(self) -> frozenset[int]:
        """Token ids that end an answer."""
        return self._stop_ids

    def prefix_ids(self, system_prompt: str | None) -> list[int]:
        """Return token ids from the start of the prompt up to the first video token.

        Raises:
            ConfigError: the model's chat template takes no system prompt, or it is no valid text.
        """
        if system_prompt is None:
            prefix, _ = self._render(None)
            return self._template_ids(prefix)
        what = f"system_prompt is {system_prompt!r}, but"
        try:
            prefix, _ = self._render(system_prompt)
        except Exception as error:  # a template is a program, and may raise what it likes
            raise ConfigError(
                f"{what} the chat template of {self.name!r} refuses it: {error}; leave it out"
            ) from error
        if system_prompt.strip() not in prefix:
            raise ConfigError(
                f"{what} the chat template of {self.name!r} leaves it out; put it into the "
                "questions, and take it out of the configuration"
            )
        if broken := _half_character(system_prompt):
            raise ConfigError(f"{what} {broken} in it is no character; give valid text")
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
        # Else an overflow shows as confident nonsense, for ever: what is remembered is spoilt.
        if not bool(torch.isfinite(logits.sum())):
            raise ModelError(
                f"{self.name!r} computes values that are no numbers in {self.shape.dtype}: set "
                "dtype to 'bfloat16' or 'float32'; what was remembered until now is of no use"
            )
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
        # The last before the question: a system prompt may speak of such a token, too.
        before, asked, after = text.rpartition(_QUESTION)
        prefix, found, between = before.rpartition(self._video_token)
        if not (asked and found):
            raise ModelError(
                f"the chat template of {self.name!r} shows no {self._video_token} before the "
                "question; a template that takes video items is needed"
            )
        return prefix, between + asked + after

    def _check_rows(self, ids: Sequence[int]) -> None:
        """Refuse a tokenizer with more tokens than the model has embeddings.

        Args:
            ids: that the prompt needs.

        Raises:
            ModelError: naming the first token without one.
        """
        rows = len(self._decoder.get_input_embeddings().weight)
        for token in ids:
            if token >= rows:
                text = self._tokenizer.convert_ids_to_tokens(token)
                raise ModelError(
                    f"the chat template of {self.name!r} needs token {token} ({text!r}), but the "
                    f"model has embeddings for {rows} tokens: its tokenizer and its weights are "
                    "not of one model"
                )

    def _template_ids(self, text: str) -> list[int]:
        with self._tokenizer_lock:
            return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _typed_ids(self, text: str) -> list[int]:
        """Tokens of what a user typed: a template token in it is text, it cannot forge a role."""
        if broken := _half_character(text):
            raise QuestionError(f"{broken} in the question is no character; send valid UTF-8")
        with self._tokenizer_lock:
            encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return list(encoded.input_ids)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _half_character(text: str) -> str:
    """Return the first half of a surrogate pair, which tokenizers cannot take; empty for none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"U+{ord(text[error.start]):04X}"
    return ""


def special_token(name: str, tokenizer: Any, token: object) -> str:
    """Return the text of a token that a family's prompts need, having checked that it is one.

    Args:
        name: the model's name, for the message.
        tokenizer: its tokenizer.
        token: text, or the id that the config names.

    Raises:
        ModelError: the tokenizer does not know it, and would write its name in letters.
    """
    text = tokenizer.convert_ids_to_tokens(token) if isinstance(token, int) else token
    ids = tokenizer(text, add_special_tokens=False).input_ids if isinstance(text, str) else []
    if len(ids) != 1:
        raise ModelError(
            f"the tokenizer of {name!r} has no token {token!r}, which prompts of its family need: "
            "its files are incomplete, or not of this model"
        )
    return str(text)


def stop_ids_of(model: Any, tokenizer: Any) -> list[int]:
    """Return the token ids that end an answer, from the model's and the tokenizer's own files."""
    found: set[int] = set()
    for source in (model.generation_config, model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    if not found:
        raise ModelError("the model's files name no end-of-answer token (eos_token_id)")
    return sorted(found)
