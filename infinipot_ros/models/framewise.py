"""Families that take every frame as one image, on ordinary RoPE (LLaVA, SmolVLM, InternVL)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from infinipot_ros.core.cache import CacheShape
from infinipot_ros.core.numbering import TokenByToken
from infinipot_ros.core.positions import RotarySpec
from infinipot_ros.core.types import Turn
from infinipot_ros.models.base import TransformersAdapter
from infinipot_ros.models.whole_images import ImagePreprocessor, refuse_other_sizes


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
            model=model,
            decoder=decoder,
            tokenizer=tokenizer,
            video_token=video_token,
        )
        text = model.config.text_config
        self._images = images
        self._added: dict[str, int] = tokenizer.get_added_vocab()
        longest_first = sorted(self._added, key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self.frames_per_step = 1
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
            ConfigError: a bound that this size does not keep.
        """
        images = self._images
        refuse_other_sizes(
            min_pixels, max_pixels, model=self.name, height=images.height, width=images.width
        )
        return images

    def numbering(self, fps: float) -> TokenByToken:  # noqa: ARG002 (time is in the text)
        """Return how positions are counted: one token behind the other."""
        return TokenByToken()

    def question_ids(self, question: str, history: Sequence[Turn] = ()) -> list[int]:
        """Return token ids from the last video token up to the start of the answer."""
        ids: list[int] = []
        plain = ""
        for template, words in self._prompt_parts(question, history):
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
