"""A deterministic synthetic robot world: rooms, objects, a moving camera, questions and answers."""

from infinipot_ros.roomworld.knowledge import Knowledge, Sighting
from infinipot_ros.roomworld.questions import Question
from infinipot_ros.roomworld.regimes import REGIMES
from infinipot_ros.roomworld.vocabulary import QUESTION_KINDS
from infinipot_ros.roomworld.world import RoomWorld, WorldFrame, frame_time_ns

__all__ = [
    "QUESTION_KINDS",
    "REGIMES",
    "Knowledge",
    "Question",
    "RoomWorld",
    "Sighting",
    "WorldFrame",
    "frame_time_ns",
]
