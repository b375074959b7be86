"""ModelAdapter: all that the engine knows of a model family.

Families live in ``infinipot_ros.models``; the engine sees token ids, embeddings, positions and a
cache, never a library class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infinipot_ros.core.cache import CacheShape, SlabCache
from infinipot_ros.core.numbering import Numbering
from infinipot_ros.core.positions import RotarySpec
from infinipot_ros.core.types import Turn


@dataclass(frozen=True, eq=False)
class EncodedBlock:
    """A block after the vision encoder.

    Attributes:
        embeddings: ``[n, hidden]``, input embeddings of the video tokens, step by step, each step
            row by row.
        steps: number of temporal steps.
        rows: patch rows of a step (after spatial merge).
        cols: patch columns of a step.
        deepstack: ``[n, hidden]`` each, added to the hidden states of the video tokens after the
            first decoder layers, one for each; empty for most families.
    """

    embeddings: Tensor
    steps: int
    rows: int
    cols: int
    deepstack: tuple[Tensor, ...] = ()


class StepText(NamedTuple):
    """Token ids that a family writes around the patches of a step, such as its timestamp."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Deepstack(NamedTuple):
    """Visual features for the first decoder layers.

    Attributes:
        video: bool ``[n]``, which of the tokens of a pass are video tokens.
        features: ``[video tokens, hidden]`` for each of the first layers.
    """

    video: Tensor
    features: tuple[Tensor, ...]


class FramePreprocessor(ABC):
    """Frames of one camera to the pixels that a vision encoder takes."""

    @abstractmethod
    def max_tokens_per_step(self) -> int:
        """Return the largest number of video tokens of one temporal step."""

    @abstractmethod
    def __call__(
        self, frames: Sequence[NDArray[np.uint8]]
    ) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
        """Resize, normalise and cut frames into patches.

        Args:
            frames: uint8 RGB images of one size, ``[h, w, 3]`` each; their number is a multiple
                of the adapter's ``frames_per_step``.

        Returns:
            float32 pixels as the family's encoder takes them, ``[patches, channels]`` or
            ``[n, 3, height, width]``, and the grid (steps, rows, cols) of patches before merging.

        Raises:
            FrameError: images of such a shape cannot be used.
        """


class ModelAdapter(ABC):
    """One set of weights, shared by any number of engines.

    Attributes:
        name: the model's name as the user gave it.
        shape: sizes of a cache for this model.
        rotary: how the model rotates its keys.
        frames_per_step: frames that make one temporal step.
        position_limit: first position id that the model was not made for.
        limit_is_fixed: whether positions beyond it would change how the model rotates its keys, so
            that they cannot be used at all.
    """

    name: str
    shape: CacheShape
    rotary: RotarySpec
    frames_per_step: int
    position_limit: int
    limit_is_fixed: bool = False

    @abstractmethod
    def preprocessor(self, min_pixels: int, max_pixels: int) -> FramePreprocessor:
        """Return a preprocessor; 0 takes the model's own bounds."""

    @abstractmethod
    def numbering(self, fps: float) -> Numbering:
        """Return how tokens are counted on the position axes at this sampling rate."""

    def step_text(self, step: int, seconds: float) -> StepText:  # noqa: ARG002 (most write none)
        """Return the text around the patches of a step; the default writes none.

        What is returned never has more tokens than :meth:`max_step_text` says.

        Args:
            step: index of the step since the start of the stream.
            seconds: its middle, seconds since the start of the stream, never negative.
        """
        return StepText()

    def max_step_text(self) -> int:
        """Return the most tokens that :meth:`step_text` gives, before and after together."""
        return 0

    def video_end(self) -> Tensor | None:
        """Return embeddings ``[k, hidden]`` between the last step and the question, None for none.

        They are part of each question, not of the memory.
        """
        return None

    @abstractmethod
    def prefix_ids(self, system_prompt: str | None) -> list[int]:
        """Return token ids from the start of the prompt up to the first video token.

        Raises:
            ConfigError: the model's template cannot carry this system prompt.
        """

    @abstractmethod
    def question_ids(self, question: str, history: Sequence[Turn] = ()) -> list[int]:
        """Return token ids from the last video token up to the start of the answer.

        Args:
            question: as typed; template tokens in it are text.
            history: earlier turns of the dialogue, oldest first.

        Raises:
            QuestionError: it is not text that can be cut into tokens.
            ModelError: there is a history, and the model's chat template takes one turn only.
        """

    @abstractmethod
    def count_question_tokens(self, question: str) -> int:
        """Return how many tokens the question itself has, without the template around it."""

    @abstractmethod
    def template_tokens(self) -> int:
        """Return how many tokens ``question_ids`` adds around a question without history."""

    @property
    @abstractmethod
    def stop_ids(self) -> frozenset[int]:
        """Token ids that end an answer."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of answer tokens, special tokens left out."""

    @abstractmethod
    def encode(self, pixels: Tensor, grid: tuple[int, int, int]) -> EncodedBlock:
        """Run the vision encoder.

        Args:
            pixels: float32, from the preprocessor.
            grid: (steps, rows, cols), from the preprocessor.
        """

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """Return input embeddings ``[n, hidden]`` of token ids int64 ``[n]``."""

    @abstractmethod
    def prefill(
        self,
        embeddings: Tensor,
        positions: Tensor,
        cache: SlabCache,
        deepstack: Deepstack | None = None,
    ) -> Tensor:
        """Run the decoder over new tokens; keys and values go to the cache, uncommitted.

        Args:
            embeddings: ``[n, hidden]``.
            positions: int64 ``[A, n]``.
            cache: committed slots are attended to.
            deepstack: of the video tokens among them, for families whose ``encode`` gives any.

        Returns:
            Last hidden state ``[n, hidden]`` (after the final norm).
        """

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits ``[n, vocabulary]`` of hidden states ``[n, hidden]``.

        Raises:
            ModelError: they are not finite; the dtype is too narrow for this model.
        """

    def to_device(self, array: NDArray[np.float32]) -> Tensor:
        """Return the array as a tensor on the model's device."""
        return torch.from_numpy(array).to(self.shape.device)
