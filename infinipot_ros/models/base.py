"""TransformersAdapter: what the families of transformers models have in common."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from infinipot_ros.core.adapter import Deepstack, ModelAdapter
from infinipot_ros.core.cache import SlabCache
from infinipot_ros.core.errors import ConfigError, ModelError, QuestionError
from infinipot_ros.core.types import Turn
from infinipot_ros.models.cache_bridge import as_library_cache
from infinipot_ros.models.families import refuse_forgetting_layers
from infinipot_ros.models.rotary import check_rotary, is_dynamic
from infinipot_ros.models.tokens import half_character, stop_ids_of


class TransformersAdapter(ModelAdapter):
    """Tokenizer, chat template, embedding, decoder and head of a transformers model.

    Args:
        name: the model's name as the user gave it.
        model: the whole model in eval mode.
        decoder: its inner language model (without head, so that blocks do not pay for logits).
        tokenizer: with a chat template that knows ``video`` items.
        video_token: text of the token that stands for the video in the rendered template.

    Raises:
        ModelError: the model has layers that cannot be capped, or a template that does not fit.
    """

    # Step and seconds of the last step that a family's text tells from those before it.
    _last_told: ClassVar[tuple[int, float]] = (0, 0.0)

    def __init__(
        self,
        name: str,
        *,
        model: Any,
        decoder: Any,
        tokenizer: Any,
        video_token: str,
    ) -> None:
        text = model.config.text_config
        refuse_forgetting_layers(name, model.config)
        check_rotary(name, decoder, text)
        self.name = name
        self.position_limit = int(text.max_position_embeddings)
        self.limit_is_fixed = is_dynamic(text)
        # Fast tokenizers hold settings that a call changes (split_special_tokens is one), and
        # questions are checked by their clients' threads while another is being answered.
        self._tokenizer_lock = threading.Lock()
        self._tokenizer = tokenizer
        self._decoder = decoder
        # transformers renamed the keyword in 5.21; 5.20 is the last that runs on Python 3.10.
        parameters = inspect.signature(decoder.forward).parameters
        self._cache_keyword = "cache" if "cache" in parameters else "past_key_values"
        self._head = model.lm_head
        self._stop_ids = frozenset(stop_ids_of(model, tokenizer))
        self._video_token = video_token
        prefix = self._template_ids(self._prefix(None))
        around = [self._template_ids(part) for part in self._template_parts(0)]
        self._template_tokens = sum(map(len, around))
        self._check_rows([*prefix, *(token for ids in around for token in ids)])

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
            return self._template_ids(self._prefix(None))
        what = f"system_prompt is {system_prompt!r}, but"
        try:
            prefix = self._prefix(system_prompt)
        except Exception as error:  # a template is a program, and may raise what it likes
            raise ConfigError(
                f"{what} the chat template of {self.name!r} refuses it: {error}; leave it out"
            ) from error
        if system_prompt.strip() not in prefix:
            raise ConfigError(
                f"{what} the chat template of {self.name!r} leaves it out; put it into the "
                "questions, and take it out of the configuration"
            )
        if broken := half_character(system_prompt):
            raise ConfigError(f"{what} {broken} in it is no character; give valid text")
        return self._template_ids(prefix)

    def question_ids(self, question: str, history: Sequence[Turn] = ()) -> list[int]:
        """Return token ids from the last video token up to the start of the answer."""
        ids: list[int] = []
        for template, words in self._prompt_parts(question, history):
            ids += self._template_ids(template) + self._typed_ids(words)
        return ids

    def count_question_tokens(self, question: str) -> int:
        """Return how many tokens the question itself has."""
        return len(self._typed_ids(question))

    def template_tokens(self) -> int:
        """Return how many tokens the template adds around a question."""
        return self._template_tokens

    def max_step_text(self) -> int:
        """Return the number of tokens around the patches of a step that comes after years."""
        return self._max_step_text

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

    @cached_property
    def _max_step_text(self) -> int:
        # Tokenizers of families that write any take every digit for itself, so that no shorter
        # number has more tokens.
        return sum(map(len, self.step_text(*self._last_told)))

    def _apply_template(self, messages: list[dict[str, Any]]) -> str:
        text: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return text

    def _prefix(self, system_prompt: str | None) -> str:
        """Return the prompt before the video."""
        mark = _mark(0)
        messages: list[dict[str, Any]] = []
        if system_prompt is not None:
            messages.append({"role": "system", "content": [text_item(system_prompt)]})
        messages.append({"role": "user", "content": [{"type": "video"}, text_item(mark)]})
        text = self._apply_template(messages)
        # The last before the question: a system prompt may speak of such a token, too.
        before, asked, _ = text.rpartition(mark)
        prefix, found, _ = before.rpartition(self._video_token)
        if not (asked and found):
            raise ModelError(
                f"the chat template of {self.name!r} shows no {self._video_token} before the "
                "question; a template that takes video items is needed"
            )
        return prefix

    def _prompt_parts(self, question: str, history: Sequence[Turn]) -> list[tuple[str, str]]:
        """Return what follows the video: pairs of template text and typed words, "" at the end.

        Raises:
            ModelError: there is a history, and the template takes one turn only.
        """
        typed = [words for turn in history for words in (turn.question, turn.answer)]
        return list(zip(self._template_parts(len(history)), [*typed, question, ""], strict=True))

    def _template_parts(self, turns: int) -> list[str]:
        """Return what the template writes from the video on: before, between and after texts.

        Args:
            turns: earlier turns of the dialogue.
        """
        marks = [_mark(number) for number in range(2 * turns + 1)]
        messages: list[dict[str, Any]] = [
            {"role": ("user", "assistant")[number % 2], "content": [text_item(mark)]}
            for number, mark in enumerate(marks)
        ]
        messages[0]["content"].insert(0, {"type": "video"})
        try:
            text = self._apply_template(messages)
        except Exception as error:  # a template is a program, and may raise what it likes
            raise ModelError(
                f"the chat template of {self.name!r} takes no dialogue: {error}"
            ) from error
        before, asked, rest = text.partition(marks[0])
        rest = before.rpartition(self._video_token)[2] + asked + rest
        parts = []
        for mark in marks:
            part, found, rest = rest.partition(mark)
            if not found:
                raise ModelError(f"the chat template of {self.name!r} drops turns of a dialogue")
            parts.append(part)
        return [*parts, rest]

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
        if broken := half_character(text):
            raise QuestionError(f"{broken} in the question is no character; send valid UTF-8")
        with self._tokenizer_lock:
            encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return list(encoded.input_ids)


def text_item(text: str) -> dict[str, str]:
    """Return a piece of text as chat templates take it."""
    return {"type": "text", "text": text}


def _mark(number: int) -> str:
    """Return what stands for a message: it cannot be typed, so any template leaves it whole."""
    return f"\x00{number}\x00"
