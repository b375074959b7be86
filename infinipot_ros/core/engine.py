"""StreamEngine: observe frames for ever, ask at any time, in constant memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infinipot_ros.compression import make_policy
from infinipot_ros.compression.base import PolicyError, VideoTokens
from infinipot_ros.core.adapter import ModelAdapter
from infinipot_ros.core.cache import SlabCache
from infinipot_ros.core.checks import check_frames
from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.decoding import StopCheck, TextSink, decode_greedily
from infinipot_ros.core.errors import ConfigError, ModelError, QuestionError
from infinipot_ros.core.interleave import interleave
from infinipot_ros.core.numbering import BlockLayout
from infinipot_ros.core.position_limit import check_position_limit, compacted_end
from infinipot_ros.core.timeline import Timeline
from infinipot_ros.core.types import Answer, MemoryStats, Turn

_LOG = logging.getLogger(__name__)

_ROWS_APART = 4  # the widest pooling kernel reaches three rows
_MAX_TOKEN_CHARACTERS = 32  # more than any but the rarest words have


class StreamEngine:
    """A bounded memory of one camera stream, and answers from it.

    Three verbs: :meth:`observe`, :meth:`ask`, :meth:`reset`.  Not thread-safe: one thread owns it
    (see :class:`infinipot_ros.core.worker.Worker`).

    Args:
        adapter: the model; several engines may share one.
        config: the memory's configuration.

    Raises:
        ConfigError: the configuration cannot work with this model.
    """

    def __init__(self, adapter: ModelAdapter, config: EngineConfig) -> None:
        self.adapter = adapter
        self.config = config
        self._preprocess = adapter.preprocessor(config.min_pixels, config.max_pixels)
        self._prefix_ids = adapter.prefix_ids(config.system_prompt)
        self._numbering = adapter.numbering(config.fps)
        tokens_per_step = self._preprocess.max_tokens_per_step() + adapter.max_step_text()
        try:
            self._policy = make_policy(config.policy, config.policy_params, config.seed)
            self._capped = config.policy != "full"
            if self._capped:
                config.check_block(tokens_per_step)
                self._policy.check(
                    max_tokens=config.max_tokens,
                    target_tokens=config.target_tokens,
                    tokens_per_step=tokens_per_step,
                )
        except PolicyError as error:
            raise ConfigError(str(error)) from error
        video_end = adapter.video_end()
        self._reserve = (
            (0 if video_end is None else len(video_end))
            + config.max_dialogue_tokens
            + config.max_question_tokens
            + adapter.template_tokens()
            + config.max_new_tokens
        )
        self._position_limit = config.position_limit or adapter.position_limit
        check_position_limit(
            config,
            self._numbering,
            limit=self._position_limit,
            fixed=adapter.position_limit if adapter.limit_is_fixed else None,
            around=(len(self._prefix_ids), self._reserve),
            patches=tokens_per_step - adapter.max_step_text(),
            text=adapter.max_step_text(),
        )
        try:
            self._cache = SlabCache(
                adapter.shape,
                prefix_tokens=len(self._prefix_ids),
                max_tokens=config.max_tokens if self._capped else None,
                reserve_tokens=self._reserve,
            )
        except (RuntimeError, MemoryError) as error:
            wanted = config.max_tokens * adapter.shape.bytes_per_token
            raise ConfigError(
                f"max_tokens is {config.max_tokens}: {wanted / 2**20:.0f} MiB for the cache cannot "
                f"be had on {adapter.shape.device}; lower max_tokens"
            ) from error
        self._prefill_prefix()
        self.reset()

    @classmethod
    def from_pretrained(
        cls,
        model: str,
        config: EngineConfig | None = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        attn_implementation: str = "sdpa",
        device_map: str = "",
        quantization: str = "",
        engines: int = 1,
    ) -> StreamEngine:
        """Load a model and return an engine for it.

        Args:
            model: ``roomworld`` (embedded), a local folder, or a hub id.
            config: the memory's configuration; None takes the defaults.
            device: ``auto`` (CUDA where there is one), ``cpu``, ``cuda``, ``cuda:1``.
            dtype: ``auto`` (float32 on CPU, else as stored), ``float32``, ``bfloat16``,
                ``float16``.
            attn_implementation: ``sdpa``, ``eager``, or ``flash_attention_2`` where flash-attn is
                installed.
            device_map: ``auto``, ``balanced`` or ``sequential`` spread the decoder's layers over
                all CUDA devices (accelerate must be installed); empty puts the model on one.
            quantization: ``8bit`` or ``4bit`` weights on a CUDA device (accelerate and
                bitsandbytes must be installed); empty for none.
            engines: how many with such a memory will share the weights, for the check of memory.

        Raises:
            ConfigError: the configuration or an option cannot work.
            ModelError: the model is missing, too large, or its family is not supported.
        """
        # The one arrow upward, taken only when called: the facade that loads by name.
        from infinipot_ros.models import load_adapter

        config = config if config is not None else EngineConfig()
        adapter = load_adapter(
            model,
            device=device,
            dtype=dtype,
            attn_implementation=attn_implementation,
            device_map=device_map,
            quantization=quantization,
            cache_tokens=0 if config.policy == "full" else engines * config.cache_tokens,
        )
        return cls(adapter, config)

    # -- the three verbs -------------------------------------------------------------------

    def observe(
        self,
        frames: NDArray[np.uint8] | Sequence[NDArray[np.uint8]],
        stamps: Sequence[int],
    ) -> None:
        """Take frames into the memory; all are encoded on return.

        Frames are grouped into temporal steps (the last frame is repeated where a step is not
        full) and steps into blocks.  Where a block would pass the cap, the memory is compressed
        first.

        Args:
            frames: uint8 RGB, ``[n, h, w, 3]`` or n images ``[h, w, 3]`` of one size.
            stamps: n capture stamps, integer nanoseconds, in stream order.

        Raises:
            FrameError: frames or stamps of a wrong number, shape or dtype.
        """
        images = check_frames(frames, stamps)
        block = self.config.block_steps * self.adapter.frames_per_step
        for start in range(0, len(images), block):
            self._observe_block(images[start : start + block], list(stamps[start : start + block]))

    def ask(
        self,
        question: str,
        *,
        history: Sequence[Turn] = (),
        max_new_tokens: int | None = None,
        on_text: TextSink | None = None,
        should_stop: StopCheck | None = None,
    ) -> Answer:
        """Answer a question from the memory, leaving no trace in it.

        Args:
            question: natural language.
            history: earlier turns of a dialogue, oldest first; of more than the configuration's
                ``max_dialogue_tokens`` the newest are taken.
            max_new_tokens: longest answer, tokens; None takes the configuration's.
            on_text: called after each token with the answer so far.
            should_stop: polled before each token; returns ``cancelled`` or ``timeout`` to stop,
                None to go on.

        Returns:
            The answer; greedy, so that asking again gives the same.

        Raises:
            QuestionError: the question is empty or too long, ``max_new_tokens`` is out of range,
                nothing has been observed yet, or there is a history and no room for any.
            ModelError: there is a history, and the model's chat template takes one turn only.
        """
        started = time.monotonic()
        self.check_question(question, max_new_tokens)
        if self._newest_stamp is None:
            raise QuestionError("nothing has been observed yet; observe frames before asking")
        limit = self.config.max_new_tokens if max_new_tokens is None else max_new_tokens
        mark = self._cache.mark()
        try:
            with torch.inference_mode():
                decoded = decode_greedily(
                    self.adapter,
                    self._cache,
                    self._embed_question(question, history),
                    first_position=self._timeline.next_text_position(),
                    max_new_tokens=limit,
                    on_text=on_text,
                    should_stop=should_stop,
                )
        finally:
            self._cache.rewind(mark)
        return Answer(
            text=decoded.text,
            confidence=decoded.confidence,
            stamp_ns=self._newest_stamp,
            tokens_retained=self._cache.video_tokens,
            latency_s=time.monotonic() - started,
            first_token_s=decoded.first_token_at - started if decoded.n_tokens else 0.0,
            n_tokens=decoded.n_tokens,
            finish_reason=decoded.finish_reason,
        )

    def reset(self) -> None:
        """Forget the stream and start a new one; the memory stays allocated."""
        self._cache.clear()
        self._policy.reset()
        self._timeline = Timeline(
            start=len(self._prefix_ids),
            numbering=self._numbering,
            interval_ns=round(1e9 / self.config.fps),
            frames_per_step=self.adapter.frames_per_step,
            device=self.adapter.shape.device,
        )
        self._newest_stamp: int | None = None
        self._frames = self._blocks = self._compressions = 0
        self._encode_ms = self._compress_ms = 0.0
        self._limit_warned = False

    # -- around them -----------------------------------------------------------------------

    def check_question(self, question: str, max_new_tokens: int | None = None) -> None:
        """Refuse a question that cannot be asked, before it waits for the model.

        Raises:
            QuestionError: it is empty or too long, or ``max_new_tokens`` is out of range.
        """
        if not isinstance(question, str) or not question.strip():
            raise QuestionError("the question is empty; ask something")
        # A first look at the length: cutting megabytes into tokens would hold up everybody else.
        if len(question) > _MAX_TOKEN_CHARACTERS * self.config.max_question_tokens:
            raise QuestionError(
                f"the question has {len(question)} characters, more than max_question_tokens "
                f"{self.config.max_question_tokens} can hold; shorten it or raise the parameter"
            )
        tokens = self.adapter.count_question_tokens(question)
        if tokens > self.config.max_question_tokens:
            raise QuestionError(
                f"the question has {tokens} tokens, more than max_question_tokens "
                f"{self.config.max_question_tokens}; shorten it or raise the parameter"
            )
        if max_new_tokens is not None and not 1 <= max_new_tokens <= self.config.max_new_tokens:
            raise QuestionError(
                f"max_new_tokens is {max_new_tokens}; it must lie in "
                f"[1, {self.config.max_new_tokens}] (the engine's max_new_tokens reserves the room)"
            )

    def stats(self) -> MemoryStats:
        """Return the memory's figures."""
        cache = self._cache
        oldest = int(cache.stamps[:, :, 0].min()) if cache.video_tokens else None
        return MemoryStats(
            model=self.adapter.name,
            policy=self.config.policy,
            tokens_retained=cache.video_tokens,
            tokens_cap=cache.max_tokens,
            bytes_used=cache.bytes_used,
            bytes_cap=cache.bytes_allocated if self._capped else None,
            frames_encoded=self._frames,
            blocks=self._blocks,
            compressions=self._compressions,
            oldest_stamp_ns=oldest,
            newest_stamp_ns=self._newest_stamp,
            encode_ms=self._encode_ms,
            compress_ms=self._compress_ms,
        )

    @property
    def cache(self) -> SlabCache:
        """The cache, to look at; changing it breaks the engine."""
        return self._cache

    def _embed_question(self, question: str, history: Sequence[Turn]) -> Tensor:
        """Return embeddings ``[n, hidden]`` from the video's end to the start of the answer."""
        adapter, room = self.adapter, self.config.max_dialogue_tokens
        if history and not room:
            raise QuestionError(
                "the question brings earlier turns along, but max_dialogue_tokens is 0; raise it"
            )
        ids = alone = adapter.question_ids(question)
        for number in range(1, len(history) + 1):
            longer = adapter.question_ids(question, history[-number:])
            if len(longer) - len(alone) > room:
                break
            ids = longer
        words = adapter.embed(torch.tensor(ids, device=adapter.shape.device))
        video_end = adapter.video_end()
        return words if video_end is None else torch.cat((video_end.to(words.dtype), words))

    # -- one block -------------------------------------------------------------------------

    def _observe_block(self, images: list[NDArray[np.uint8]], stamps: list[int]) -> None:
        started = time.monotonic()
        n_frames, newest = len(images), stamps[-1]
        while len(images) % self.adapter.frames_per_step:
            images.append(images[-1])
            stamps.append(stamps[-1])
        pixels, grid = self._preprocess(images)
        adapter, timeline = self.adapter, self._timeline
        texts = [
            adapter.step_text(timeline.next_step + number, seconds)
            for number, seconds in enumerate(timeline.seconds(stamps))
        ]
        longest = max(len(text.before) + len(text.after) for text in texts)
        if longest > adapter.max_step_text():
            raise ModelError(
                f"model {adapter.name!r} writes {longest} tokens between steps, but its adapter "
                f"foresees {adapter.max_step_text()}: it does not know this tokenizer"
            )
        with torch.inference_mode():
            encoded = adapter.encode(adapter.to_device(pixels), grid)
            block = interleave(encoded, texts, adapter.embed)
            self._make_room(block.layout)
            origin = timeline.place(block.layout, stamps)
            adapter.prefill(block.embeddings, origin.positions, self._cache, block.deepstack)
        # Only now, when nothing can fail any more, does the block become part of the stream.
        self._cache.commit_video(origin)
        timeline.advance(block.layout, stamps)
        self._newest_stamp = newest
        self._frames += n_frames
        self._blocks += 1
        self._encode_ms = self._milliseconds_since(started)

    def _make_room(self, layout: BlockLayout) -> None:
        """Compress where the block would pass the cap, re-index where it would pass the limit."""
        cache, config = self._cache, self.config
        incoming = layout.tokens
        per_step = -(-incoming // layout.steps)  # a step's text may be longer than another's
        keep = self._policy.target(
            stored=cache.video_tokens,
            incoming=incoming,
            max_tokens=config.max_tokens,
            target_tokens=config.target_tokens,
            tokens_per_step=per_step,
        )
        if keep is not None and keep < cache.video_tokens:
            started = time.monotonic()
            try:
                cache.retain(self._policy.select(self._view(per_step), keep))
            except BaseException:
                # The cache is whole, but what the policy remembers may be of tokens that it has
                # let go, or has only half seen: better that it starts afresh.
                self._policy.reset()
                raise
            self._compressions += 1
            self._compress_ms = self._milliseconds_since(started)
        cache.ensure(incoming)
        self._keep_below_limit(layout)

    def _milliseconds_since(self, started: float) -> float:
        if self.adapter.shape.device.type == "cuda":
            torch.cuda.synchronize(self.adapter.shape.device)  # else only the launch is timed
        return 1e3 * (time.monotonic() - started)

    def _view(self, tokens_per_step: int) -> VideoTokens:
        cache = self._cache

        def keys(layers: slice, space: str) -> Tensor:
            if space == "rotated":
                return cache.video_keys[layers]
            return cache.unrotated_keys(layers, self.adapter.rotary)

        rows, cols, text = cache.rows.long(), cache.cols.long(), None
        if self.adapter.max_step_text():
            text = rows < 0
            # Apart from the grid, so that no neighbourhood of patches reaches into the text.
            rows = torch.where(text, rows.amax() + _ROWS_APART, rows)
        return VideoTokens(
            values=cache.video_values,
            steps=cache.steps.long(),
            rows=rows,
            cols=cols,
            max_tokens=self.config.max_tokens,
            tokens_per_step=tokens_per_step,
            key_source=keys,
            text=text,
        )

    def _keep_below_limit(self, layout: BlockLayout) -> None:
        """Re-index the memory if the block or a question after it would pass the limit.

        Only then, not at every compression, and so that a quarter of the range is free afterwards:
        a key that survives thousands of compressions in half precision must not be rotated
        thousands of times.
        """
        timeline = self._timeline
        needed = self._numbering.span(layout) + self._reserve
        if timeline.next_text_position() + needed <= self._position_limit:
            return
        if self.config.positions == "compact":
            last = self._position_limit - needed
            timeline.compact(self._cache, self.adapter.rotary, compacted_end(timeline.start, last))
        elif not self._limit_warned:
            self._limit_warned = True
            _LOG.warning(
                "positions pass the model's limit of %d: answers may get worse; "
                "set positions to 'compact' to keep them below it",
                self._position_limit,
            )

    def _prefill_prefix(self) -> None:
        # Once for ever: the prefix is never evicted nor moved, so a reset need not run the model.
        device, axes = self.adapter.shape.device, self.adapter.shape.axes
        ids = torch.tensor(self._prefix_ids, device=device)
        positions = torch.arange(len(ids), device=device).expand(axes, -1)
        with torch.inference_mode():
            self.adapter.prefill(self.adapter.embed(ids), positions, self._cache)
        self._cache.commit_text(len(ids))
