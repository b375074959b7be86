"""What tokenizers must know, and cannot take."""

from __future__ import annotations

from typing import Any

from infinipot_ros.core.errors import ModelError


def half_character(text: str) -> str:
    """Return the first half of a surrogate pair, which tokenizers cannot take; empty for none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"U+{ord(text[error.start]):04X}"
    return ""


def special_token(name: str, tokenizer: Any, token: object) -> str:
    """Return the text of a token that a family's prompts need, having checked that it is one.

    Args:
        name: the model's name, for the message.
        tokenizer: its tokenizer.
        token: text, or the id that the config names.

    Raises:
        ModelError: the tokenizer does not know it, and would write its name in letters.
    """
    text = tokenizer.convert_ids_to_tokens(token) if isinstance(token, int) else token
    ids = tokenizer(text, add_special_tokens=False).input_ids if isinstance(text, str) else []
    if len(ids) != 1:
        raise ModelError(
            f"the tokenizer of {name!r} has no token {token!r}, which prompts of its family need: "
            "its files are incomplete, or not of this model"
        )
    return str(text)


def stop_ids_of(model: Any, tokenizer: Any) -> list[int]:
    """Return the token ids that end an answer, from the model's and the tokenizer's own files."""
    found: set[int] = set()
    for source in (model.generation_config, model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    if not found:
        raise ModelError("the model's files name no end-of-answer token (eos_token_id)")
    return sorted(found)
