"""The node's parameters: one table, from which declarations, ranges and refusals follow."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import (
    InvalidParameterTypeException,
    InvalidParameterValueException,
    ParameterException,
)
from rclpy.node import Node

from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.errors import ConfigError
from infinipot_ros.core.types import EMBEDDED_MODEL

Value = bool | int | float | str | list[str]

_TYPE_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


@dataclass(frozen=True)
class Parameter:
    """One row of the table.

    Attributes:
        name: full name; dots are the levels of a YAML file.
        default: value where the user sets none; its type is the parameter's type. An integer is
            accepted for a float.
        description: what it does, for `ros2 param describe` and the documentation.
        unit: unit of a number.
        low: smallest value of a number.
        high: largest value of a number.
        open_range: the ends of the range are excluded.
        choices: the only strings allowed.
        live: a change takes effect while the node is configured; all others need a cleanup first.
        read_only: fixed when the node starts.
    """

    name: str
    default: Value
    description: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    open_range: bool = False
    choices: tuple[str, ...] = ()
    live: bool = False
    read_only: bool = False

    @property
    def allowed(self) -> str:
        """What may be set, in words."""
        kind = type(self.default)
        if kind is list:
            return "a list of strings"
        if self.choices:
            return "one of " + ", ".join(repr(choice) for choice in self.choices)
        words = _TYPE_WORDS[kind]
        if self.low is not None and self.high is not None:
            ends = "()" if self.open_range else "[]"
            words += f" in {ends[0]}{self.low}, {self.high}{ends[1]}"
        return f"{words} {self.unit}".rstrip()

    def check(self, value: object) -> None:
        """Refuse a value of a wrong type or outside the range.

        Raises:
            ConfigError: naming the parameter, the value and what is allowed.
        """
        if not self._fits(value):
            raise ConfigError(f"parameter {self.name!r} is {value!r}; it must be {self.allowed}")

    def descriptor(self) -> ParameterDescriptor:
        """Return the ROS descriptor."""
        out = ParameterDescriptor(name=self.name, read_only=self.read_only)
        out.description = self.description + (f" [{self.unit}]" if self.unit else "")
        out.additional_constraints = f"must be {self.allowed}"
        if isinstance(self.default, float):
            # A YAML file's `fps: 2` is an integer; without this, rclpy refuses it for a double.
            out.dynamic_typing = True
        if self.low is None or self.high is None:
            return out
        if isinstance(self.default, float):
            out.floating_point_range = [
                FloatingPointRange(from_value=float(self.low), to_value=float(self.high))
            ]
        else:
            out.integer_range = [
                IntegerRange(from_value=int(self.low), to_value=int(self.high), step=1)
            ]
        return out

    def _fits(self, value: object) -> bool:
        if isinstance(self.default, list):
            if isinstance(value, str) or not isinstance(value, Sequence):
                return False
            return all(isinstance(item, str) for item in value)
        if isinstance(self.default, bool) or isinstance(value, bool):
            return isinstance(self.default, bool) and isinstance(value, bool)
        if isinstance(self.default, str):
            return isinstance(value, str) and (not self.choices or value in self.choices)
        if not isinstance(value, int if isinstance(self.default, int) else (int, float)):
            return False
        if not math.isfinite(value):
            return False
        if self.low is None or self.high is None:
            return True
        if self.open_range:
            return self.low < value < self.high
        return self.low <= value <= self.high


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        "autostart",
        True,
        "configure and activate by itself at start; false: wait for lifecycle transitions",
        read_only=True,
    ),
    Parameter(
        "model",
        EMBEDDED_MODEL,
        "model that watches: 'roomworld' (embedded), a local folder, or a hub id",
    ),
    Parameter("device", "auto", "where it runs: 'auto' (CUDA if there is one), 'cpu', 'cuda:0'"),
    Parameter(
        "dtype",
        "auto",
        "number format of the model; 'auto': float32 on a CPU, else as stored",
        choices=("auto", "float32", "bfloat16", "float16"),
    ),
    Parameter(
        "attn_implementation",
        "sdpa",
        "attention kernel; flash_attention_2 needs CUDA and flash-attn",
        choices=("sdpa", "eager", "flash_attention_2"),
    ),
    Parameter(
        "device_map",
        "",
        "spreads the model's layers over all CUDA devices, with accelerate; empty: one device",
        choices=("", "auto", "balanced", "sequential"),
    ),
    Parameter(
        "quantization",
        "",
        "weights of the language model in 8 or 4 bits, with bitsandbytes on CUDA; empty: neither",
        choices=("", "8bit", "4bit"),
    ),
    Parameter(
        "cpu_threads",
        0,
        "threads of the model on a CPU; 0: one for each core",
        low=0,
        high=256,
    ),
    Parameter(
        "image_topics",
        ["image"],
        "image topics to watch, one memory each; raw or compressed, whichever type is found there",
    ),
    Parameter(
        "cameras",
        [""],
        "names of the cameras, in the order of image_topics; empty: taken from the topic names",
    ),
    Parameter(
        "warn_after_s",
        5.0,
        "time without a first image after which the node says what it finds on the graph",
        unit="s",
        low=0.5,
        high=3600.0,
    ),
    Parameter(
        "memory.max_tokens",
        1024,
        "hard cap M on the video tokens kept per layer and head, for each camera",
        unit="tokens",
        low=2,
        high=10_000_000,
    ),
    Parameter("memory.policy", EngineConfig.policy, "compression policy, by name"),
    Parameter(
        "memory.policy_params",
        [""],
        "parameters of the policy as 'name=value', for example ['recent_ratio=0.125']",
    ),
    Parameter(
        "memory.retain_ratio",
        0.75,
        "share of the cap that a compression leaves",
        low=0.0,
        high=1.0,
        open_range=True,
    ),
    Parameter(
        "memory.positions",
        "compact",
        "position ids on an endless stream: re-indexed before the model's limit, or left to grow",
        choices=("compact", "absolute"),
    ),
    Parameter("memory.seed", 0, "seed of policies that draw at random", low=0, high=2**31 - 1),
    Parameter(
        "sampling.fps",
        2.0,
        "frames taken from each camera, chosen by their stamps",
        unit="1/s",
        low=0.001,
        high=1000.0,
    ),
    Parameter(
        "sampling.block_steps",
        4,
        "temporal steps that are encoded together",
        unit="steps",
        low=1,
        high=256,
    ),
    Parameter(
        "sampling.min_pixels",
        0,
        "smallest frame after resizing; 0: the model's own",
        unit="pixels",
        low=0,
        high=2**27,
    ),
    Parameter(
        "sampling.max_pixels",
        0,
        "largest frame after resizing, the main lever on speed; 0: the model's own",
        unit="pixels",
        low=0,
        high=2**27,
    ),
    Parameter(
        "queue.frames",
        0,
        "sampled frames of one camera that may wait, the newest win and drops are counted; "
        "0: two blocks",
        unit="frames",
        low=0,
        high=4096,
    ),
    Parameter(
        "queue.questions",
        8,
        "questions that may wait; one more is refused",
        unit="questions",
        low=1,
        high=64,
        read_only=True,
    ),
    Parameter(
        "question.max_tokens",
        128,
        "longest question; room for it is reserved",
        unit="tokens",
        low=1,
        high=65_536,
    ),
    Parameter(
        "question.max_new_tokens",
        64,
        "longest answer, and the default; room for it is reserved",
        unit="tokens",
        low=1,
        high=65_536,
    ),
    Parameter(
        "question.timeout_s",
        30.0,
        "default time limit of a question, waiting and answering together",
        unit="s",
        low=0.1,
        high=3600.0,
        live=True,
    ),
    Parameter(
        "question.max_dialogue_tokens",
        256,
        "earlier turns of its conversation that a question brings along, the newest that fit; room "
        "for them is reserved; 0: no conversations",
        unit="tokens",
        low=0,
        high=65_536,
    ),
    Parameter(
        "question.max_conversations",
        32,
        "conversations that are kept, over all cameras; the least recently used goes first",
        unit="conversations",
        low=1,
        high=1024,
    ),
    Parameter(
        "question.conversation_timeout_s",
        600.0,
        "time without a question after which a conversation is forgotten",
        unit="s",
        low=1.0,
        high=604_800.0,
    ),
    Parameter(
        "question.system_prompt", "", "replaces the model's own system prompt; empty: keeps it"
    ),
    Parameter(
        "qos.reliability",
        "best_effort",
        "reliability of the image subscriptions; best_effort hears every publisher",
        choices=("best_effort", "reliable"),
    ),
    Parameter(
        "qos.depth",
        5,
        "messages that the middleware keeps for an image subscription",
        unit="messages",
        low=1,
        high=1000,
    ),
    Parameter(
        "status.period_s",
        1.0,
        "time between two messages on ~/status",
        unit="s",
        low=0.05,
        high=60.0,
    ),
)

BY_NAME: Mapping[str, Parameter] = {row.name: row for row in PARAMETERS}


def declare(node: Node) -> None:
    """Declare every parameter on the node.

    Raises:
        ConfigError: the command line or a params file sets one to a value that is not allowed.
    """
    for row in PARAMETERS:
        try:
            node.declare_parameter(row.name, row.default, row.descriptor())
            row.check(node.get_parameter(row.name).value)
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            raise ConfigError(f"{_one_line(error)}; {row.name!r} must be {row.allowed}") from error
        except ParameterException as error:
            raise ConfigError(f"parameter {row.name!r}: {_one_line(error)}") from error


def unknown(node: Node) -> dict[str, str]:
    """Return parameters that the user sets and nobody reads, each with the likely meant name or "".

    ROS drops them silently: a typing error in a parameter file would go unnoticed.
    """
    # rclpy has no public view of overrides that were not declared.
    given = getattr(node, "_parameter_overrides", {})
    others = [name for name in given if not node.has_parameter(name)]
    return {
        name: next(iter(difflib.get_close_matches(name, BY_NAME, n=1)), "")
        for name in others
        if not name.startswith("qos_overrides.")
    }


def read(node: Node) -> dict[str, Any]:
    """Return the values of all parameters by name; numbers with a decimal default are floats."""
    values = {row.name: node.get_parameter(row.name).value for row in PARAMETERS}
    for row in PARAMETERS:
        if isinstance(row.default, float):
            values[row.name] = float(values[row.name])
        elif isinstance(row.default, list):
            values[row.name] = [item for item in values[row.name] if item]
    return values


def refusal(name: str, value: object, *, configured: bool) -> str | None:
    """Say why a change is refused, None if it is allowed.

    Args:
        name: parameter; one that is not in the table is allowed.
        value: new value.
        configured: the node has read its parameters; only live ones may change.
    """
    row = BY_NAME.get(name)
    if row is None:
        return None
    try:
        row.check(value)
    except ConfigError as error:
        return str(error)
    if configured and not row.live:
        return (
            f"parameter {name!r} is read when the node is configured; clean it up first "
            "(deactivate, cleanup), then set it and configure again"
        )
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
