"""How many parameters a model has, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from infinipot_ros.planning.figures import ModelFigures, TextFigures, VisionFigures


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters.

    Attributes:
        linear: in matrices of the decoder's layers: what 8- and 4-bit weights shrink.
        other: all others: vision, embeddings, head, norms and biases.
    """

    linear: int
    other: int

    @property
    def total(self) -> int:
        """All parameters; those of a tied head counted once."""
        return self.linear + self.other

    def __add__(self, more: Parameters) -> Parameters:
        return Parameters(self.linear + more.linear, self.other + more.other)

    def __mul__(self, times: int) -> Parameters:
        return Parameters(self.linear * times, self.other * times)


def count_parameters(model: ModelFigures) -> Parameters:
    """Return the numbers of parameters of a model, as its library class has them."""
    vision = _encoder(model.family, model.vision) + _connector(model)
    return _decoder(model.text) + Parameters(0, vision.total)


def _dense(inputs: int, outputs: int, *, bias: bool = True) -> Parameters:
    return Parameters(inputs * outputs, outputs if bias else 0)


def _norm(width: int, *, bias: bool = True) -> Parameters:
    return Parameters(0, width * (1 + bias))


def _decoder(text: TextFigures) -> Parameters:
    layer = (
        _dense(text.hidden, text.query_width, bias=text.qkv_bias)
        + _dense(text.hidden, text.kv_width, bias=text.qkv_bias) * 2
        + _dense(text.query_width, text.hidden, bias=False)
        + _dense(text.hidden, text.intermediate, bias=False) * 3
        + _norm(text.hidden, bias=False) * 2
        + _norm(text.head_dim, bias=False) * (2 if text.qk_norm else 0)
    )
    tables = text.vocabulary * text.hidden * (1 if text.tied else 2)
    return layer * text.layers + _norm(text.hidden, bias=False) + Parameters(0, tables)


def _encoder(family: str, vision: VisionFigures) -> Parameters:
    width = vision.hidden
    biased = family != "qwen2_5_vl"  # its norms are RMS norms, its MLP is gated
    layer = (
        _dense(width, width) * 4
        + _dense(width, vision.intermediate) * (1 if biased else 2)
        + _dense(vision.intermediate, width)
        + _norm(width, bias=biased) * 2
    )
    outside = vision.patch_values * width + vision.grid * width
    if family not in ("qwen2_vl", "qwen2_5_vl", "llava_next_video"):
        outside += width  # bias of the patch embedding
    if family in ("llava_onevision", "smolvlm"):
        outside += 2 * width  # the norm behind the last layer
    if family == "llava_next_video":
        outside += 2 * width + 4 * width  # class token and its position; norms before and after
    if family == "internvl":
        outside += 2 * width + 2 * width * vision.depth  # likewise; and two scales a layer
    return layer * vision.depth + Parameters(0, outside)


def _connector(model: ModelFigures) -> Parameters:
    vision, hidden = model.vision, model.text.hidden
    width = vision.hidden
    merged = round(vision.merge) ** 2 * width
    if model.family in ("llava_onevision", "llava_next_video"):
        return _dense(width, hidden) + _dense(hidden, hidden) + Parameters(0, hidden)  # newline
    if model.family == "smolvlm":
        return _dense(merged, hidden, bias=False)
    if model.family == "internvl":
        return _norm(merged) + _dense(merged, hidden) + _dense(hidden, hidden)
    merger = _dense(merged, merged) + _dense(merged, hidden)
    norm = _norm(width, bias=model.family != "qwen2_5_vl")
    return merger + norm + (merger + _norm(merged)) * vision.deepstack
