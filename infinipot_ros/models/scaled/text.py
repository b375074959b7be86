"""A tokenizer that needs no download: one token a byte, and the special tokens of a family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def byte_tokenizer(special: Sequence[str], *, eos: str, chat_template: str) -> Any:
    """Return a fast tokenizer with ids 0 .. 255 for bytes and the special tokens behind them.

    Args:
        special: special tokens, in the order of their ids from 256 on.
        eos: the one that ends an answer.
        chat_template: Jinja source.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    # Added here, in their order: left to the class below, the one that ends an answer comes first.
    core.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=eos, additional_special_tokens=list(special)
    )
    tokenizer.chat_template = chat_template
    return tokenizer
