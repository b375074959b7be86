"""A deterministic synthetic robot world: rooms, objects, a moving camera, questions and answers."""

from infinipot_ros.roomworld.questions import Knowledge, Question, Sighting
from infinipot_ros.roomworld.vocabulary import QUESTION_KINDS
from infinipot_ros.roomworld.world import RoomWorld, WorldFrame, frame_time_ns

__all__ = [
    "QUESTION_KINDS",
    "Knowledge",
    "Question",
    "RoomWorld",
    "Sighting",
    "WorldFrame",
    "frame_time_ns",
]
