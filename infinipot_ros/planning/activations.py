"""What passes hold at their peaks beside weights and cache, bytes.

Every function below follows one pass through the library's code and adds up the tensors that are
alive at its largest moment.  In eager execution a caller's variable keeps a tensor alive for as
long as the call lasts: that is why a layer's input counts beside its residual.

Letters: n new tokens, K stored and new ones, P patches, e bytes of a number.
"""

from __future__ import annotations

from dataclasses import dataclass

from infinipot_ros.planning.config_file import QWEN
from infinipot_ros.planning.figures import ModelFigures, TextFigures

_F32 = 4
_I64 = 8
_PLACE = 16
"""Row and column of a patch, int64."""
_INTERPOLATION = 4
"""With learned position embeddings, four neighbours and their weights take three times as much."""
_MLP_WIDTHS = {"qwen2_vl": 3, "qwen2_5_vl": 3, "llava_next_video": 3}
"""Widths of an encoder's MLP that exist at a time; a plain activation needs two."""
_KERNEL_QUERIES, _KERNEL_KEYS = 256, 512
"""Queries and keys of the tile that a fused attention kernel works on."""


@dataclass(frozen=True)
class Passes:
    """Formulas for one model.

    Attributes:
        model: its figures.
        itemsize: e, bytes of a number of weights and activations.
        eager: attention scores are stored whole instead of being worked off in tiles.
    """

    model: ModelFigures
    itemsize: int
    eager: bool = False

    def decode(self, new: int, stored: int, *, kept: int = 1) -> int:
        """Return the peak of the decoder over new tokens.

        Args:
            new: n.
            stored: tokens in the cache before.
            kept: embeddings of the pass that are alive beside its input, in multiples of it.
        """
        text, e = self.model.text, self.itemsize
        keys = stored + new
        wide, query = new * text.hidden * e, new * text.query_width * e
        many = new > 1
        mask = new * keys * (1 if not self.eager else e) if many else 0
        rotary = 2 * new * text.head_dim * e
        base = (1 + kept) * wide + mask + rotary  # the pass's input and the layer's input
        repeated = 2 * keys * text.query_width * e
        if text.heads == text.kv_heads or (not many and not self.eager):
            repeated = 0  # one token is attended to in groups, without copies
        if self.eager:
            scores = new * keys * text.heads
            inside = repeated + scores * (e + _F32 + (e if e != _F32 else 0))
        else:
            # The kernel takes a mask of numbers, and writes beside its result the sum of each row.
            inside = repeated + (new * keys * e if many else 0) + query + _tile(new, keys, text)
            inside += new * text.heads * _F32
        attention = wide + query + inside
        # Both results of the rotation exist before the first of their inputs is given up.
        turning = wide + 4 * query + 2 * new * text.kv_width * e
        mlp = 2 * wide + 3 * new * text.intermediate * e
        norm = wide + new * text.hidden * (2 * _F32 + e) if e != _F32 else 0
        return base + max(attention, turning, mlp, norm)

    def logits(self) -> int:
        """Return the peak of turning one hidden state into a token and its probability."""
        return 2 * self.model.text.vocabulary * _F32

    def question(self, tokens: int, stored: int) -> int:
        """Return the peak of a question: its tokens at once, then an answer's one by one."""
        wide = tokens * self.model.text.hidden * self.itemsize
        return max(self.decode(tokens, stored), self.decode(1, stored), wide + self.logits())

    def block(self, steps: int, patches: int, tokens: int, text: int, stored: int) -> int:
        """Return the peak of encoding and prefilling a block, without compression.

        Args:
            steps: temporal steps.
            patches: of a step.
            tokens: video tokens of a step.
            text: tokens of text around them, for each step.
            stored: tokens in the cache before.
        """
        new = steps * (tokens + text)
        return max(
            self.encode(steps, patches),
            self.held(steps, tokens, text) + self.decode(new, stored, kept=0),
        )

    def held(self, steps: int, tokens: int, text: int) -> int:
        """Return what a block keeps alive between encoding and the end of its prefill."""
        video = steps * tokens * self.model.text.hidden * self.itemsize
        features = video * (1 + self.model.vision.deepstack)
        both = steps * (tokens + text) * self.model.text.hidden * self.itemsize
        return features + (both if text else 0)

    def encode(self, steps: int, patches: int) -> int:
        """Return the peak of the vision encoder over a block."""
        vision, e = self.model.vision, self.itemsize
        rows = steps * (patches + (1 if vision.class_token else 0))
        wide, inner = rows * vision.hidden * e, rows * vision.intermediate * e
        # Frames arrive in float32 and are cast.
        pixels = steps * patches * vision.patch_values * (e if e != _F32 else 0)
        # A convolution lays its weights out anew, in half precision with a fourth channel.
        kernel = vision.patch_values * vision.hidden * e * (4 if e != _F32 else 3) // 3
        scores = steps * (rows // steps) ** 2 * vision.heads if self.eager else 0
        gates = _MLP_WIDTHS.get(self.model.family, 2)
        if self.model.family in QWEN:
            rotary = 2 * rows * (vision.hidden // vision.heads) * _F32
            places = rows * _PLACE * (1 if not vision.grid else _INTERPOLATION)
            embedded = rows * vision.hidden * _F32 if vision.grid else 0  # position embeddings
            features = vision.deepstack * self._merged(steps, patches)
            # Queries and keys are turned in float32, all steps at once; scores are of one step.
            turned = (6 if e != _F32 else 4) * rows * vision.hidden * _F32
            attention = 4 * wide + max(turned, 5 * wide, 2 * wide + scores // steps * (e + _F32))
            inside = rotary + embedded + features + max(attention, 2 * wide + gates * inner)
            return pixels + wide + places + max(kernel, inside)
        # The embedded patches, the layer's input; then its norm, queries, keys, values, results.
        attention = 4 * wide + max(2 * wide, scores * (e + _F32))
        mlp = 2 * wide + gates * inner + scores * e
        if self.model.family == "internvl":
            mlp += wide  # the attention's output beside the sum with its input
        pooling = self._pooling(steps, patches)
        return pixels + wide + max(kernel, wide + max(attention, mlp, pooling))

    def _merged(self, steps: int, patches: int) -> int:
        """Return the bytes of a block's video tokens at the width of the decoder."""
        tokens = steps * patches / self.model.vision.merge**2
        return int(tokens * self.model.text.hidden * self.itemsize)

    def _pooling(self, steps: int, patches: int) -> int:
        """Return the peak behind the encoder, where patches get the decoder's width unmerged."""
        if self.model.family != "llava_onevision":
            return 0
        unmerged = steps * patches * self.model.text.hidden * self.itemsize
        return 3 * unmerged + 2 * self._merged(steps, patches)


def _tile(new: int, keys: int, text: TextFigures) -> int:
    rows = min(new, _KERNEL_QUERIES if new >= 768 else 64 if new >= 192 else 32)
    return rows * (min(keys, _KERNEL_KEYS) + 2 + text.head_dim) * _F32


def compression_peak(text: TextFigures, *, stored: int, keep: int, patches: int) -> int:
    """Return the peak of a compression by the default policy, ``multi_tar``.

    Args:
        text: the decoder.
        stored: N, tokens per layer and head before it.
        keep: C, tokens per layer and head after it.
        patches: P, places of the grid that holds every token of a step.
    """
    slots = text.layers * text.kv_heads * stored
    kept = text.layers * text.kv_heads * keep
    rows = text.kv_heads * stored
    # Steps, rows, columns and patches as int64, what is recent and what is protected.
    seen = 4 * _I64 * slots + 2 * slots
    keys = rows * text.head_dim * _F32
    # A layer's keys, those of the layer before it, cosines and sines, and half of the result.
    unrotating = int(3.5 * keys) + rows * patches * (_F32 + 1)
    comparing = keys + rows * patches * (3 * _F32 + 1)
    scores = _F32 * slots
    # Scores, before and after masking, what is known of them, the best, and marks for each.
    choosing = 3 * scores + kept * (_F32 + _F32 + _I64) + 2 * slots
    return seen + max(scores + max(unrotating, comparing), choosing)
