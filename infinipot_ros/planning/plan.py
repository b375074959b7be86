"""Put the figures together: what a model with so many cameras takes on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.errors import ConfigError
from infinipot_ros.planning.activations import Passes, compression_peak
from infinipot_ros.planning.cache import CacheBytes, policy_state, rotation_tables
from infinipot_ros.planning.frames import PROMPTS, PromptText, StepShape, step_shape
from infinipot_ros.planning.parameters import count_parameters
from infinipot_ros.planning.positions import check_positions
from infinipot_ros.planning.source import KnownModel

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
QUANTIZED = {"8bit": 1.0, "4bit": 0.5 + 4 / 64}
"""Bytes of a number of a decoder layer; at 4 bits, 64 of them share a float32 scale."""
ATTENTION = ("sdpa", "eager")

_RUNTIME = 512 * 2**20  # of a CUDA context with the kernels of torch: a rule of thumb
_HOUR = 3600
_MOST = 2**31 - 1
_MOST_CAMERAS = 1000
_CHECKED_BY_ENGINE = ("cap", "block_steps")  # from below
_DEFAULTS = EngineConfig()


@dataclass(frozen=True)
class Load:
    """What a model is to carry.

    Attributes:
        cap: M, tokens per layer and head of each camera.
        cameras: cameras, each with a memory of its own.
        fps: frames a second taken from each.
        pixels: largest frame after resizing, pixels; 0 takes the model's own.
        block_steps: temporal steps encoded together.
        retain_ratio: share of the cap that a compression leaves.
        dtype: number format of the weights; empty takes the stored one.
        quantization: ``8bit`` or ``4bit`` weights of the decoder's layers; empty for neither.
        attention: ``sdpa`` or ``eager``.
        device_memory: bytes of the device; 0 where it is not known.
        max_question_tokens: longest question, tokens.
        max_new_tokens: longest answer, tokens.
        max_dialogue_tokens: earlier turns that a question may bring along, tokens; 0 for none.
        prefix_tokens: of the system prompt; 0 takes the model's own.
        asked_tokens: that a question takes, all in all; 0 takes the most that there may be.
        reserve_tokens: slots for a question and its answer; 0 takes the most that there may be.
    """

    cap: int = _DEFAULTS.max_tokens
    cameras: int = 1
    fps: float = _DEFAULTS.fps
    pixels: int = 0
    block_steps: int = _DEFAULTS.block_steps
    retain_ratio: float = _DEFAULTS.retain_ratio
    dtype: str = ""
    quantization: str = ""
    attention: str = "sdpa"
    device_memory: int = 0
    max_question_tokens: int = _DEFAULTS.max_question_tokens
    max_new_tokens: int = _DEFAULTS.max_new_tokens
    max_dialogue_tokens: int = 256  # as the node has it; an engine alone has none
    prefix_tokens: int = 0
    asked_tokens: int = 0
    reserve_tokens: int = 0

    def __post_init__(self) -> None:
        for name, known in (
            ("dtype", ("", *ITEMSIZE)),
            ("quantization", ("", *QUANTIZED)),
            ("attention", ATTENTION),
        ):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(
                    f"{name} is {value!r}; it must be one of "
                    + ", ".join(repr(choice) for choice in known if choice)
                )
        for name, least, most in (
            ("cameras", 1, _MOST_CAMERAS),
            ("pixels", 0, _MOST),
            ("device_memory", 0, 2**60),
            ("cap", 1, _MOST),
            ("block_steps", 1, _MOST),
            ("max_question_tokens", 1, _MOST),
            ("max_new_tokens", 1, _MOST),
            ("max_dialogue_tokens", 0, _MOST),
        ):
            value = getattr(self, name)
            if value > most or (value < least and name not in _CHECKED_BY_ENGINE):
                raise ConfigError(f"{name} is {value}; it must lie in [{least}, {most}]")
        self.engine_config()

    def engine_config(self) -> EngineConfig:
        """Return the same for an engine.

        Raises:
            ConfigError: an engine would refuse it.
        """
        return EngineConfig(
            max_tokens=self.cap,
            fps=self.fps,
            block_steps=self.block_steps,
            retain_ratio=self.retain_ratio,
            max_pixels=self.pixels,
            max_question_tokens=self.max_question_tokens,
            max_new_tokens=self.max_new_tokens,
            max_dialogue_tokens=self.max_dialogue_tokens,
        )

    def around(self, prompt: PromptText) -> tuple[int, int]:
        """Return the tokens of the prefix, and of the longest question with its answer.

        Args:
            prompt: what the family's template takes.
        """
        reserve = self.reserve_tokens or self.longest_question(prompt) + self.max_new_tokens
        return self.prefix_tokens or prompt.prefix, reserve

    def longest_question(self, prompt: PromptText) -> int:
        """Return the tokens of the longest question with its template and all that goes before."""
        longest = self.max_dialogue_tokens + self.max_question_tokens + prompt.template
        return self.asked_tokens or longest


@dataclass(frozen=True)
class Plan:
    """What it takes, bytes where nothing else is said.

    Attributes:
        files: the model.
        load: what it is to carry.
        dtype: number format of weights, cache and activations.
        step: a temporal step.
        parameters: number of parameters.
        token: keys and values of one token.
        provenance: where one token comes from.
        weights: of all parameters.
        cache: of one camera.
        state: what the policy remembers, of one camera.
        tables: cosines and sines of positions, one for all cameras.
        encode: peak of the vision encoder over a block, part of the next.
        block: peak of encoding, compressing and prefilling a block.
        question: peak of a question.
        runtime: of the device's own software.
        largest_cap: M that just fits the device; None where its memory is not known.
        notes: what else should be known.
    """

    files: KnownModel
    load: Load
    dtype: str
    step: StepShape
    parameters: int
    token: int
    provenance: int
    weights: int
    cache: int
    state: int
    tables: int
    encode: int
    block: int
    question: int
    runtime: int
    largest_cap: int | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def total(self) -> int:
        """All of it; passes of several cameras take turns, so the largest counts once."""
        passes = max(self.block, self.question)
        return (
            self.weights
            + self.load.cameras * (self.cache + self.state)
            + self.tables
            + passes
            + self.runtime
        )

    @property
    def fits(self) -> bool | None:
        """Whether it fits the device; None where its memory is not known."""
        return self.total <= self.load.device_memory if self.load.device_memory else None

    @property
    def frames(self) -> int:
        """Frames that the cap holds as they come, before anything is compressed."""
        return self.load.cap // self.step.tokens * self.step.frames

    @property
    def seconds(self) -> float:
        """The time that these frames span, seconds."""
        return self.frames / self.load.fps

    @property
    def full_cache(self) -> int:
        """Keys and values of an hour of one camera, nothing evicted."""
        steps = round(_HOUR * self.load.fps / self.step.frames)
        return steps * self.step.tokens * self.token


def make_plan(files: KnownModel, load: Load, *, step: StepShape | None = None) -> Plan:
    """Plan a model.

    Args:
        files: the model.
        load: what it is to carry.
        step: a temporal step; None takes the largest that the load allows.

    Raises:
        ConfigError: an engine would refuse the load with this model.
    """
    shape = step or step_shape(files.figures, files.preprocessor, pixels=load.pixels)
    note = check_load(files, load, shape)
    plan = _at_cap(files, load, shape)
    largest = _largest_cap(files, load, shape) if load.device_memory else None
    return replace(plan, largest_cap=largest, notes=(note,) if note else ())


def check_load(files: KnownModel, load: Load, step: StepShape) -> str:
    """Return what an engine would warn of with this load, empty for nothing.

    Raises:
        ConfigError: an engine would refuse it.
    """
    config = load.engine_config()
    config.check_block(step.tokens)
    around = load.around(PROMPTS[files.figures.family])
    return check_positions(config, files.figures, step, around=around)


def _at_cap(files: KnownModel, load: Load, step: StepShape) -> Plan:
    model, config = files.figures, load.engine_config()
    text, prompt = model.text, PROMPTS[model.family]
    dtype = load.dtype or files.dtype
    size = ITEMSIZE[dtype]
    numbers = count_parameters(model)
    layers = QUANTIZED.get(load.quantization, float(size))
    cache = CacheBytes.of(text, size)
    prefix, reserve = load.around(prompt)
    passes = Passes(model, size, eager=load.attention == "eager")
    new = load.block_steps * step.tokens
    compressing = passes.held(load.block_steps, step.video_tokens, step.text) + compression_peak(
        text, stored=load.cap, keep=config.target_tokens, patches=step.places
    )
    block = passes.block(
        load.block_steps, step.patches, step.video_tokens, step.text, prefix + load.cap - new
    )
    return Plan(
        files=files,
        load=load,
        dtype=dtype,
        step=step,
        parameters=numbers.total,
        token=cache.token,
        provenance=cache.provenance,
        weights=int(numbers.linear * layers) + numbers.other * size,
        cache=cache.allocated(cap=load.cap, prefix=prefix, reserve=reserve),
        state=policy_state(text, load.cap),
        tables=rotation_tables(text, text.positions),
        encode=passes.encode(load.block_steps, step.patches),
        block=max(block, compressing),
        question=passes.question(load.longest_question(prompt), prefix + load.cap),
        runtime=_RUNTIME if load.device_memory else 0,
    )


def _largest_cap(files: KnownModel, load: Load, step: StepShape) -> int:
    """Return the largest cap that fits the device, in whole steps; 0 where no two blocks do."""

    def fits(steps: int) -> bool:
        return bool(_at_cap(files, replace(load, cap=steps * step.tokens), step).fits)

    largest = step.tokens * _last(fits, max(1, -(-2 // step.tokens)))
    try:
        replace(load, cap=max(2, largest)).engine_config().check_block(step.tokens)
    except ConfigError:
        return 0
    return largest


def _last(holds: Callable[[int], bool], least: int) -> int:
    """Return the last number from `least` on for which a falling condition holds, or 0."""
    if not holds(least):
        return 0
    low, high = least, 2 * least
    while holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
