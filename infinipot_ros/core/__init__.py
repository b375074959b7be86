"""The ROS-free heart: frames in, bounded memory, answers out."""

from infinipot_ros.core.config import EngineConfig
from infinipot_ros.core.engine import StreamEngine
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
from infinipot_ros.core.types import Answer, Evidence, Frame, MemoryStats
from infinipot_ros.core.worker import Worker

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
    "Worker",
]
