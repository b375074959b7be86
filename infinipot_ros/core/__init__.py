"""The ROS-free heart: frames in, bounded memory, answers out."""

import importlib
from typing import TYPE_CHECKING

from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.errors import (
    BusyError,
    ConfigError,
    FrameError,
    InfinipotError,
    ModelError,
    QuestionError,
    QueueFullError,
    StoppedError,
)
from infinipot_ros.core.tickets import CameraStatus, Ticket
from infinipot_ros.core.types import Answer, Evidence, Frame, MemoryStats, Turn

# These two import torch. A camera that only converts images must not wait a second for it, nor
# keep hundreds of megabytes of it: they are imported when they are first asked for.
if TYPE_CHECKING:
    from infinipot_ros.core.engine import StreamEngine
    from infinipot_ros.core.worker import Worker
else:
    _DEFERRED = {"StreamEngine": "engine", "Worker": "worker"}

    def __getattr__(name: str) -> object:
        if name not in _DEFERRED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_DEFERRED[name]}"), name)
        globals()[name] = value
        return value


__all__ = [
    "Answer",
    "BusyError",
    "CameraStatus",
    "ConfigError",
    "EngineConfig",
    "Evidence",
    "Frame",
    "FrameError",
    "InfinipotError",
    "MemoryStats",
    "ModelError",
    "QuestionError",
    "QueueFullError",
    "StoppedError",
    "StreamEngine",
    "Ticket",
    "Turn",
    "Worker",
]
