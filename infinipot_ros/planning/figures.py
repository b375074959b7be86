"""The numbers of a model that decide how much memory it takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextFigures:
    """The decoder.

    Attributes:
        layers: decoder layers.
        hidden: width.
        heads: query heads.
        kv_heads: KV heads.
        head_dim: channels per head.
        intermediate: width of the gated MLP.
        vocabulary: rows of the embedding table.
        positions: longest position the model was made for, tokens.
        axes: position axes (3 for multimodal RoPE, 1 otherwise).
        tied: the head shares the embedding table.
        qkv_bias: queries, keys and values have a bias.
        qk_norm: queries and keys are normalised.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    positions: int
    axes: int
    tied: bool
    qkv_bias: bool
    qk_norm: bool

    @property
    def query_width(self) -> int:
        """Channels of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Channels of all KV heads."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True)
class VisionFigures:
    """The vision encoder.

    Attributes:
        depth: layers.
        hidden: width.
        heads: attention heads.
        intermediate: width of the MLP.
        patch: side of a patch, pixels.
        frames: frames of a temporal patch.
        merge: patches along the side of a video token; not whole where features are interpolated.
        image: side of the picture that it takes, pixels; 0 where any size will do.
        deepstack: layers of the decoder that get visual features.
        grid: learned position embeddings; 0 where positions are rotary only.
        class_token: the encoder puts a token of its own before the patches.
        per_second: positions on the temporal axis that make a second; 0 where time is not counted.
    """

    depth: int
    hidden: int
    heads: int
    intermediate: int
    patch: int
    frames: int
    merge: float
    image: int
    deepstack: int = 0
    grid: int = 0
    class_token: bool = False
    per_second: float = 0.0

    @property
    def patch_values(self) -> int:
        """Pixel values of a patch, all channels and frames."""
        return 3 * self.frames * self.patch**2


@dataclass(frozen=True)
class ModelFigures:
    """A model.

    Attributes:
        family: ``model_type`` of its config.
        text: the decoder.
        vision: the vision encoder.
    """

    family: str
    text: TextFigures
    vision: VisionFigures
