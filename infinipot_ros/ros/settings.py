"""From parameter values to what the node builds: engine configuration and cameras."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rclpy.exceptions import InvalidTopicNameException
from rclpy.validate_topic_name import validate_topic_name

from infinipot_ros.compression import make_policy
from infinipot_ros.compression.base import PolicyError
from infinipot_ros.core import ConfigError, EngineConfig

_GENERIC = re.compile(r"(image|camera|raw|rect|rgb|color|mono|compressed|_)+")
"""Topic parts that say nothing about which camera it is: `image_rect_color`, `camera`, `rgb`."""


@dataclass(frozen=True)
class Settings:
    """What the parameters say, checked.

    Attributes:
        engine: configuration of each camera's engine.
        topics: image topic of each camera by its name, in the order of the parameters.
        values: all parameter values by name.
    """

    engine: EngineConfig
    topics: Mapping[str, str]
    values: Mapping[str, Any]

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Settings:
        """Check the parameters against each other.

        Raises:
            ConfigError: they contradict each other.
        """
        engine = EngineConfig(
            max_tokens=values["memory.max_tokens"],
            policy=values["memory.policy"],
            policy_params=parse_policy_params(values["memory.policy_params"]),
            retain_ratio=values["memory.retain_ratio"],
            block_steps=values["sampling.block_steps"],
            fps=values["sampling.fps"],
            positions=values["memory.positions"],
            max_question_tokens=values["question.max_tokens"],
            max_new_tokens=values["question.max_new_tokens"],
            max_dialogue_tokens=values["question.max_dialogue_tokens"],
            system_prompt=values["question.system_prompt"] or None,
            min_pixels=values["sampling.min_pixels"],
            max_pixels=values["sampling.max_pixels"],
            seed=values["memory.seed"],
        )
        # A block has a frame a step at the least.
        if 0 < values["queue.frames"] < engine.block_steps:
            raise ConfigError(
                f"parameter 'queue.frames' is {values['queue.frames']}; a block of "
                f"{engine.block_steps} steps has at least as many frames: raise it to two blocks, "
                "or set 0 for that"
            )
        # An unknown policy is refused now, before minutes of loading a model.
        try:
            make_policy(engine.policy, engine.policy_params, engine.seed)
        except PolicyError as error:
            raise ConfigError(f"parameters memory.policy, memory.policy_params: {error}") from error
        return cls(engine, name_cameras(values["image_topics"], values["cameras"]), dict(values))


_PARAMETER_NAMES = {
    "max_tokens": "memory.max_tokens",
    "retain_ratio": "memory.retain_ratio",
    "positions": "memory.positions",
    "fps": "sampling.fps",
    "block_steps": "sampling.block_steps",
    "min_pixels": "sampling.min_pixels",
    "max_pixels": "sampling.max_pixels",
    "max_pending_frames": "queue.frames",
    "max_pending_questions": "queue.questions",
    "max_question_tokens": "question.max_tokens",
    "max_dialogue_tokens": "question.max_dialogue_tokens",
    "max_conversations": "question.max_conversations",
    "conversation_timeout_s": "question.conversation_timeout_s",
}
# Names with an underscore are no words of English; the others are names where a value follows.
_CORE_NAME = re.compile(
    r"(?<![\w.])(?:("
    + "|".join(name for name in _PARAMETER_NAMES if "_" in name)
    + r")(?!\w)|(positions|fps)(?= is ))"
)


def in_parameter_names(text: str) -> str:
    """Return a message of the core with the node's parameters in place of the core's fields."""
    return _CORE_NAME.sub(lambda match: _PARAMETER_NAMES[match[0]], text)


def name_cameras(topics: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Give each image topic a camera name.

    Without names, the last telling part of the topic serves: `/robot/front/image_raw` is `front`; a
    topic without one is `camera`. Where two topics would share a name, their whole paths serve.

    Args:
        topics: image topics.
        names: names in the same order, or none.

    Returns:
        Topic by camera name, in order.

    Raises:
        ConfigError: no topics, one that is no topic name or is there twice, or names that do not
            match.
    """
    if not topics:
        raise ConfigError("parameter 'image_topics' is empty; name at least one image topic")
    for topic in topics:
        try:
            validate_topic_name(topic)
        except InvalidTopicNameException as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"parameter 'image_topics' has {topic!r}: {reason}") from error
    if len(set(topics)) < len(topics):
        raise ConfigError(f"parameter 'image_topics' names a topic twice: {list(topics)}")
    if names and len(names) != len(topics):
        raise ConfigError(
            f"parameter 'cameras' has {len(names)} names {list(names)} for {len(topics)} "
            f"image_topics {list(topics)}; give one a topic, or none"
        )
    chosen = list(names) or [_telling_part(topic) for topic in topics]
    if len(set(chosen)) < len(chosen):
        if names:
            raise ConfigError(f"parameter 'cameras' has a name twice: {list(names)}")
        chosen = [topic.strip("~/").replace("/", "_") for topic in topics]
    if len(set(chosen)) < len(chosen):
        raise ConfigError(
            f"parameter 'image_topics' {list(topics)} would give two cameras one name {chosen}; "
            "name them with the parameter 'cameras'"
        )
    return dict(zip(chosen, topics, strict=True))


def parse_policy_params(items: Sequence[str]) -> dict[str, object]:
    """Parse `name=value` items; a value is a Python literal, else a string.

    Raises:
        ConfigError: an item has no name or no `=`.
    """
    out: dict[str, object] = {}
    for item in items:
        name, sign, text = (part.strip() for part in item.partition("="))
        if not sign or not name.isidentifier():
            raise ConfigError(
                f"parameter 'memory.policy_params' has {item!r}; write 'name=value', "
                "for example 'recent_ratio=0.125'"
            )
        try:
            out[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            out[name] = text
    return out


def _telling_part(topic: str) -> str:
    parts = [part for part in topic.strip("~/").split("/") if part]
    telling = [part for part in parts if not _GENERIC.fullmatch(part)]
    return telling[-1] if telling else "camera"
