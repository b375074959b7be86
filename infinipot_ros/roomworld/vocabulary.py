"""Name everything that can be seen, asked and answered in RoomWorld."""

from __future__ import annotations

KINDS: tuple[str, ...] = (
    "ball", "cup", "box", "bottle", "chair", "plant",
    "lamp", "book", "key", "cone", "clock", "hat",
)  # fmt: skip

COLORS: dict[str, tuple[int, int, int]] = {
    "red": (215, 40, 40),
    "green": (40, 165, 60),
    "blue": (45, 80, 225),
    "yellow": (240, 215, 40),
    "purple": (150, 55, 190),
    "black": (25, 25, 25),
}

SIDES: tuple[str, ...] = ("left", "middle", "right")
ROOMS: tuple[str, ...] = ("kitchen", "bedroom", "bathroom", "office", "garage")
CORRIDOR = "corridor"
NUMBERS: tuple[str, ...] = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight",
    "nine", "ten",
)  # fmt: skip

MAX_COUNT = len(NUMBERS) - 1
"""Largest number that a question can be answered with."""

QUESTION_KINDS: tuple[str, ...] = (
    "seen", "color", "side", "room", "count", "first", "last", "before", "after", "now",
    "where_now", "where_before",
)  # fmt: skip

SYSTEM_PROMPT = "you are a robot ."

SPECIAL_TOKENS: tuple[str, ...] = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<unk>",
)  # fmt: skip

_WORDS = (
    "system user assistant you are a robot . , ? ! what color was the which side room in on how "
    "many objects did do see first last before after now yes no nothing is it of an i and "
    "have seen there come into view notice noticed tell me or saw object came count that number "
    "were where then has any at"
)

_HELD_OUT_EVERY = 9


def held_out(kind: str, color: str, room: str) -> bool:
    """Tell whether this combination never occurs in training, to be met in evaluations only.

    One in nine; every kind in every colour is trained in at least four of the five rooms. Raises
    ValueError or KeyError for a word that the vocabulary does not list.
    """
    place = ROOMS.index(room)
    number = KINDS.index(kind) + 2 * list(COLORS).index(color) + 2 * place
    return number % _HELD_OUT_EVERY == 0


def words() -> list[str]:
    """Return every token of the vocabulary once, in id order."""
    listed = [
        *SPECIAL_TOKENS, *_WORDS.split(), *KINDS, *COLORS, *SIDES, *ROOMS, CORRIDOR, *NUMBERS,
        "kinds",
    ]  # fmt: skip
    return list(dict.fromkeys(listed))
