"""Say every question in eight ways, of which two are never trained on.

`{a}` and `{b}` stand for things: "cup", "red cup", "cup in the kitchen". Every word of a phrasing
that is held out occurs in another one that is trained, or the model could not know it.
"""

from __future__ import annotations

from typing import NamedTuple

N_PHRASINGS = 8
TRAINED = range(6)
"""Numbers of the phrasings that training uses."""
HELD_OUT = range(6, N_PHRASINGS)
"""Numbers of those that only evaluations use."""
ALL = range(N_PHRASINGS)
PLAIN = range(1)
"""The most common one alone."""

_FIRST = (
    "what did you see {w} ?",
    "which object did you see {w} ?",
    "what was the {w} object ?",
    "tell me what you saw {w} .",
    "which object was {w} ?",
    "what object came {w} ?",
    "which object came {w} ?",
    "tell me which object you saw {w} .",
)
_ORDER = (
    "was the {a} {w} the {b} ?",
    "did the {a} come {w} the {b} ?",
    "did you see the {a} {w} the {b} ?",
    "was the {a} there {w} the {b} ?",
    "have you seen the {a} {w} the {b} ?",
    "tell me , was the {a} {w} the {b} ?",
    "did you notice the {a} {w} the {b} ?",
    "tell me , did the {a} come {w} the {b} ?",
)


def _with(templates: tuple[str, ...], word: str) -> tuple[str, ...]:
    return tuple(template.replace("{w}", word) for template in templates)


PHRASINGS: dict[str, tuple[str, ...]] = {
    "seen": (
        "did you see a {a} ?",
        "have you seen a {a} ?",
        "was there a {a} ?",
        "did a {a} come into view ?",
        "was a {a} there ?",
        "did you notice a {a} ?",
        "have you noticed a {a} ?",
        "was a {a} in view ?",
    ),
    "color": (
        "what color was the {a} ?",
        "which color was the {a} ?",
        "what color did the {a} have ?",
        "tell me the color of the {a} .",
        "of what color was the {a} ?",
        "the {a} was of which color ?",
        "which color did the {a} have ?",
        "tell me which color the {a} was .",
    ),
    "side": (
        "which side was the {a} on ?",
        "on which side was the {a} ?",
        "what side was the {a} on ?",
        "was the {a} left , middle or right ?",
        "tell me the side of the {a} .",
        "on what side did you see the {a} ?",
        "on what side was the {a} ?",
        "tell me on which side the {a} was .",
    ),
    "room": (
        "which room was the {a} in ?",
        "in which room was the {a} ?",
        "what room was the {a} in ?",
        "in what room did you see the {a} ?",
        "tell me the room of the {a} .",
        "which room did you see the {a} in ?",
        "in what room was the {a} ?",
        "tell me in which room the {a} was .",
    ),
    "count": (
        "how many kinds of objects did you see ?",
        "how many kinds of objects have you seen ?",
        "how many kinds of objects were there ?",
        "count the kinds of objects that you saw .",
        "tell me how many kinds of objects you saw .",
        "what is the number of kinds that you noticed ?",
        "how many kinds of objects did you notice ?",
        "tell me the number of kinds that you saw .",
    ),
    "first": _with(_FIRST, "first"),
    "last": _with(_FIRST, "last"),
    "before": _with(_ORDER, "before"),
    "after": _with(_ORDER, "after"),
    "now_what": (
        "what do you see now ?",
        "what is in view now ?",
        "which object do you see now ?",
        "now what do you see ?",
        "tell me what you see now .",
        "which object is in view now ?",
        "what object is in view now ?",
        "tell me which object you see now .",
    ),
    "now_seen": (
        "do you see a {a} now ?",
        "is a {a} in view now ?",
        "is there a {a} now ?",
        "now do you see a {a} ?",
        "tell me , do you see a {a} now ?",
        "is a {a} there now ?",
        "is there a {a} in view now ?",
        "tell me , is a {a} in view now ?",
    ),
    "where_now": (
        "where is the {a} now ?",
        "which room is the {a} in now ?",
        "in which room is the {a} now ?",
        "where did you see the {a} last ?",
        "tell me where the {a} is now .",
        "in what room is the {a} now ?",
        "now where is the {a} ?",
        "tell me which room the {a} is in now .",
    ),
    "where_before": (
        "where was the {a} before ?",
        "which room was the {a} in before ?",
        "in which room was the {a} before ?",
        "where did you see the {a} first ?",
        "tell me where the {a} was before .",
        "in what room was the {a} before ?",
        "what room was the {a} in before ?",
        "tell me which room the {a} was in before .",
    ),
}


class Phrase(NamedTuple):
    """A question in words."""

    text: str
    referent: int
    """Index of the word by which it is clear what is asked about: the last word of the last thing,
    or the last word before the mark where no thing is named."""


def phrase(form: str, number: int, *things: str) -> Phrase:
    """Put `things` into phrasing `number` of `form`.

    Raises KeyError for an unknown form, IndexError for a number that does not exist.
    """
    template = PHRASINGS[form][number].split()
    said: list[str] = []
    referent = len(template) - 2
    for word in template:
        if word in ("{a}", "{b}"):
            said.extend(things["ab".index(word[1])].split())
            referent = len(said) - 1
        else:
            said.append(word)
    return Phrase(" ".join(said), referent)
