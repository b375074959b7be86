"""Families that take every frame as one image, on ordinary RoPE (LLaVA, SmolVLM, InternVL)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from infinipot_ros.core.cache import CacheShape
from infinipot_ros.core.errors import ConfigError, ModelError
from infinipot_ros.core.numbering import TokenByToken
from infinipot_ros.core.positions import RotarySpec
from infinipot_ros.core.types import Turn
from infinipot_ros.models.base import TransformersAdapter, stop_ids_of
from infinipot_ros.models.rotary import check_rotary
from infinipot_ros.models.whole_images import ImagePreprocessor


class FramewiseAdapter(TransformersAdapter):
    r"""What these families have in common: one image size, one position axis.

    Their templates set plain text, such as line breaks, directly before the question.  A tokenizer
    may cut ``"\n\nWhat"`` otherwise than ``"\n\n"`` and ``"What"``, so what is typed is cut
    together with the plain text around it: the ids are those of the whole prompt.

    Args:
        name: the model's name as the user gave it.
        model: the whole model in eval mode.
        decoder: its inner language model.
        tokenizer: its tokenizer, with chat template.
        images: frames to pixels.
        video_token: text that stands for the video in the rendered template.

    Raises:
        ModelError: the model has layers that cannot be capped, or a template that does not fit.
    """

    def __init__(
        self,
        name: str,
        *,
        model: Any,
        decoder: Any,
        tokenizer: Any,
        images: ImagePreprocessor,
        video_token: str,
    ) -> None:
        super().__init__(
            name,
            tokenizer=tokenizer,
            decoder=decoder,
            head=model.lm_head,
            stop_ids=stop_ids_of(model, tokenizer),
            video_token=video_token,
        )
        text = model.config.text_config
        check_rotary(name, decoder, text)
        # Some families name the kind of each layer, older ones only the width of the window.
        kinds = getattr(text, "layer_types", None)
        slides = (
            any(kind != "full_attention" for kind in kinds)
            if kinds
            else getattr(text, "sliding_window", None) is not None
        )
        if slides:
            raise ModelError(
                f"{name!r} has sliding-window layers; they forget by themselves and cannot be "
                "capped honestly: set sliding_window to null, or use_sliding_window to false, in "
                "the text_config of its config"
            )
        self._images = images
        self._added: dict[str, int] = tokenizer.get_added_vocab()
        longest_first = sorted(self._added, key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self.frames_per_step = 1
        self.position_limit = int(text.max_position_embeddings)
        # InternVL3 asks for dynamic scaling: the frequencies change at the limit, which positions
        # do not pass unless they are absolute.
        inv_freq = decoder.rotary_emb.inv_freq.float()
        self.rotary = RotarySpec(inv_freq, torch.zeros_like(inv_freq, dtype=torch.int64))
        parameter = next(decoder.parameters())
        self.shape = CacheShape(
            layers=text.num_hidden_layers,
            kv_heads=text.num_key_value_heads,
            head_dim=2 * len(inv_freq),
            axes=1,
            dtype=parameter.dtype,
            device=parameter.device,
        )

    def preprocessor(self, min_pixels: int, max_pixels: int) -> ImagePreprocessor:
        """Return a preprocessor to the one size that the model's files name.

        Raises:
            ConfigError: other bounds than 0 are asked for.
        """
        if min_pixels or max_pixels:
            raise ConfigError(
                f"min_pixels is {min_pixels} and max_pixels {max_pixels}, but models like "
                f"{self.name!r} take one frame size ({self._images.width}x{self._images.height} "
                "pixels); set both to 0"
            )
        return self._images

    def numbering(self, fps: float) -> TokenByToken:  # noqa: ARG002 (time is in the text)
        """Return how positions are counted: one token behind the other."""
        return TokenByToken()

    def question_ids(self, question: str, history: Sequence[Turn] = ()) -> list[int]:
        """Return token ids from the last video token up to the start of the answer."""
        typed = [words for turn in history for words in (turn.question, turn.answer)]
        ids: list[int] = []
        plain = ""
        for template, words in zip(
            self._template_parts(len(history)), [*typed, question, ""], strict=True
        ):
            for chunk in self._special.split(template):
                if chunk in self._added:
                    ids += [*self._typed_ids(plain), self._added[chunk]]
                    plain = ""
                else:
                    plain += chunk
            plain += words
        return ids + self._typed_ids(plain)

    def count_question_tokens(self, question: str) -> int:
        """Return how many tokens the question adds to those of the template, or has by itself."""
        alone = super().count_question_tokens(question)
        return max(alone, len(self.question_ids(question)) - self.template_tokens())

    def _template_parts(self, turns: int) -> list[str]:
        """Return what the template writes from the video on: before, between and after texts.

        Args:
            turns: earlier turns of the dialogue.
        """
        marks = [f"\x00{number}\x00" for number in range(2 * turns + 1)]
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


def text_item(text: str) -> dict[str, str]:
    """Return a piece of text as chat templates take it."""
    return {"type": "text", "text": text}
