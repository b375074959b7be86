"""Conversations: what was asked and answered before, so that a question can follow up on it.

Bounded in every direction: conversations, turns of each, length of an id, time without a question.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from infinipot_ros.core.errors import ConfigError, QuestionError
from infinipot_ros.core.types import Answer, Turn

MAX_ID_CHARACTERS = 128
"""Longest id of a conversation, characters."""

MAX_TURNS = 32
"""Turns of one conversation that are kept; the newest win."""

_Key = tuple[str, str]


@dataclass
class _Conversation:
    turns: deque[Turn]
    used_at: float


class Conversations:
    """The turns of the most recently used conversations.

    A conversation belongs to one camera, since its answers rest on what that camera showed: one id
    used with two cameras makes two.

    Not thread-safe: the worker's thread owns it.  Which answers came before a question is known
    there and nowhere else, so a lock would guard an order that other threads cannot see.

    Times are ``time.monotonic()``, seconds, and are handed in: a question that waited for the model
    counts from when it was asked.

    Args:
        max_conversations: conversations that are kept; the least recently used goes first.
        timeout_s: time without a question after which a conversation is forgotten, seconds.
        max_turns: turns of one conversation that are kept; the newest win.

    Raises:
        ConfigError: a bound that cannot work.
    """

    def __init__(
        self, max_conversations: int, timeout_s: float, max_turns: int = MAX_TURNS
    ) -> None:
        if max_conversations < 1:
            raise ConfigError(f"max_conversations is {max_conversations}; it must be at least 1")
        if not timeout_s > 0:
            raise ConfigError(f"conversation_timeout_s is {timeout_s!r}; it must be above 0 s")
        if max_turns < 1:
            raise ConfigError(f"max_turns is {max_turns}; it must be at least 1")
        self._max_conversations = max_conversations
        self._timeout_s = float(timeout_s)
        self._max_turns = max_turns
        self._kept: OrderedDict[_Key, _Conversation] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._kept)

    def history(self, camera: str, conversation_id: str, asked_at: float) -> tuple[Turn, ...]:
        """Return a conversation's turns, oldest first, for a question that follows up on them.

        Conversations that had no question for too long, this one or another, are forgotten first.

        Args:
            camera: name of the camera.
            conversation_id: empty for a question of its own, which has no history.
            asked_at: when the question was asked, seconds.
        """
        # One scan of at most max_conversations: questions wait, so times come slightly out of order
        # and the front of the queue need not be the one that is idle longest.
        for key in [k for k, c in self._kept.items() if asked_at - c.used_at > self._timeout_s]:
            del self._kept[key]
        found = self._kept.get((camera, conversation_id))
        if found is None:
            return ()
        found.used_at = max(found.used_at, asked_at)
        self._kept.move_to_end((camera, conversation_id))
        return tuple(found.turns)

    def add(
        self, camera: str, conversation_id: str, question: str, answer: Answer, answered_at: float
    ) -> None:
        """Add a turn, if the question belongs to a conversation and its answer was finished.

        An answer that reached its token limit counts: it is what the client was told.  One that was
        cancelled or ran out of time does not.

        Args:
            camera: name of the camera.
            conversation_id: empty for a question of its own, which leaves nothing behind.
            question: as it was asked.
            answer: as it was given.
            answered_at: when, seconds.
        """
        if not conversation_id or answer.finish_reason not in ("stop", "length"):
            return
        key = (camera, conversation_id)
        kept = self._kept.setdefault(
            key, _Conversation(deque(maxlen=self._max_turns), used_at=answered_at)
        )
        kept.turns.append(Turn(question, answer.text))
        kept.used_at = max(kept.used_at, answered_at)
        self._kept.move_to_end(key)
        if len(self._kept) > self._max_conversations:
            self._kept.popitem(last=False)

    def forget(self, camera: str) -> None:
        """Forget the conversations about one camera."""
        for key in [key for key in self._kept if key[0] == camera]:
            del self._kept[key]


def check_conversation_id(conversation_id: str) -> None:
    """Refuse an id that is too long to be kept; any thread may ask.

    Raises:
        QuestionError: saying how long it is and may be.
    """
    if len(conversation_id) > MAX_ID_CHARACTERS:
        raise QuestionError(
            f"conversation_id has {len(conversation_id)} characters; at most {MAX_ID_CHARACTERS} "
            "are taken, a number or a UUID is enough"
        )
