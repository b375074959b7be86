"""LLaVA-OneVision and LLaVA-NeXT-Video as ModelAdapters: whole frames and nothing between."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from infinipot_ros.core.adapter import EncodedBlock
from infinipot_ros.core.errors import ModelError
from infinipot_ros.models.framewise import FramewiseAdapter
from infinipot_ros.models.whole_images import image_preprocessor

# Ends a word, and is a token of its own, in the tokenizers that set a space before a text.
_ANCHOR = "\n"


class _LlavaAdapter(FramewiseAdapter):
    """What the two families share: vision tower, projector and pooling, frame by frame.

    The language model inside is any that has ordinary RoPE, over all channels, and full attention
    in all layers: Qwen2, Llama (Vicuna, Yi), Mistral without its window.

    Args:
        name: the model's name as the user gave it.
        model: the family's ``ForConditionalGeneration`` in eval mode.
        tokenizer: its tokenizer, with the chat template of the model's processor.
        processor_config: content of ``preprocessor_config.json``; what it holds under
            ``video_processor`` comes first.
        side: tokens of a frame's side after pooling.

    Raises:
        ModelError: the language model cannot be capped, or the files do not fit together.
    """

    def __init__(
        self,
        name: str,
        *,
        model: Any,
        tokenizer: Any,
        processor_config: dict[str, Any],
        side: int,
    ) -> None:
        video_token = tokenizer.convert_ids_to_tokens(model.config.video_token_id)
        if not isinstance(video_token, str):
            raise ModelError(
                f"the tokenizer of {name!r} has no token {model.config.video_token_id}, which its "
                "config names as the video's (video_token_index)"
            )
        decoder = model.model.language_model
        super().__init__(
            name,
            model=model,
            decoder=decoder,
            tokenizer=tokenizer,
            images=image_preprocessor(
                processor_config | (processor_config.get("video_processor") or {}),
                image_size=int(model.config.vision_config.image_size),
                rows=side,
                cols=side,
            ),
            video_token=video_token,
        )
        self._model = model.model
        # Tokenizers of the Llama family set a space before a text, most of them not before what
        # follows a special token inside it.
        inside = list(tokenizer(f"{video_token}a", add_special_tokens=False).input_ids)[1:]
        alone = list(tokenizer("a", add_special_tokens=False).input_ids)
        self._space_set_first = inside != alone
        lead = list(tokenizer("").input_ids)[:1]
        self._lead = lead if lead == [tokenizer.bos_token_id] else []

    def prefix_ids(self, system_prompt: str | None) -> list[int]:
        """Return token ids from the start of the prompt up to the first video token.

        Begins with the token that the tokenizer itself sets before every text (Llama's ``<s>``):
        the templates of these families leave it to the tokenizer.
        """
        ids = super().prefix_ids(system_prompt)
        return ids if ids[:1] == self._lead else self._lead + ids

    def encode(self, pixels: Tensor, grid: tuple[int, int, int]) -> EncodedBlock:
        """Run the vision encoder; see :class:`ModelAdapter`."""
        # The library's own path knows the feature layers, the class token and the pooling.  Frames
        # do not see each other in it, so encoding block by block equals encoding at once.
        output = self._model.get_video_features(
            pixels.to(self._model.dtype).unsqueeze(0), return_dict=True
        )
        steps, rows, cols = grid
        # LLaVA-OneVision ends every call with its newline, which belongs to the end of the stream.
        features = output.pooler_output[0][: steps * rows * cols]
        return EncodedBlock(features.to(self.shape.device), steps, rows, cols)

    def _typed_ids(self, text: str) -> list[int]:
        """Tokens of plain text behind a special token; a template token in it is text."""
        alone = super()._typed_ids(text)
        if not self._space_set_first:
            return alone
        anchor, both = super()._typed_ids(_ANCHOR), super()._typed_ids(_ANCHOR + text)
        return both[len(anchor) :] if both[: len(anchor)] == anchor else alone


class LlavaOnevisionAdapter(_LlavaAdapter):
    """Adapter of one loaded ``LlavaOnevisionForConditionalGeneration``; see the base class."""

    def __init__(
        self, name: str, *, model: Any, tokenizer: Any, processor_config: dict[str, Any]
    ) -> None:
        vision = model.config.vision_config
        super().__init__(
            name,
            model=model,
            tokenizer=tokenizer,
            processor_config=processor_config,
            side=-(-(vision.image_size // vision.patch_size) // 2),
        )

    def video_end(self) -> Tensor:
        """Return the newline ``[1, hidden]`` that ends a video."""
        newline: Tensor = self._model.image_newline
        return newline.detach().to(self.shape.device).unsqueeze(0)


class LlavaNextVideoAdapter(_LlavaAdapter):
    """Adapter of one loaded ``LlavaNextVideoForConditionalGeneration``; see the base class."""

    def __init__(
        self, name: str, *, model: Any, tokenizer: Any, processor_config: dict[str, Any]
    ) -> None:
        vision = model.config.vision_config
        super().__init__(
            name,
            model=model,
            tokenizer=tokenizer,
            processor_config=processor_config,
            side=vision.image_size // vision.patch_size // model.config.spatial_pool_stride,
        )
