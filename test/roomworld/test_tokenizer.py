"""The tokenizer takes what people type and knows every word that RoomWorld uses."""

from __future__ import annotations

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, RoomWorld
from infinipot_ros.roomworld.training.architecture import build_tokenizer
from infinipot_ros.roomworld.training.batches import BRANCH_LENGTH
from infinipot_ros.roomworld.vocabulary import words

S = 1_000_000_000


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def question_part(tokenizer, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False).input_ids)


def test_no_word_of_any_question_or_answer_is_unknown(tokenizer) -> None:
    rng = np.random.default_rng(0)
    for seed in range(60):
        world = RoomWorld(seed, tour_s=20)
        for kind in QUESTION_KINDS:
            question = world.ask(kind, 20 * S, rng)
            if question is None:
                continue
            tokens = question_part(tokenizer, question.text)
            assert tokens == question.text.split()
            # <|vision_end|>, the question, <|im_end|>, <|im_start|>, assistant, the answer
            assert len(tokens) + 5 <= BRANCH_LENGTH
            assert question_part(tokenizer, question.answer) == [question.answer]


@pytest.mark.parametrize(
    "typed, meant",
    [
        ("Did you see a cup?", "did you see a cup ?"),
        ("  What colour was the Hat ?", "what color was the hat ?"),
        ("WAS THE KEY BEFORE THE BOX?!", "was the key before the box ? !"),
        ("Which room was the lamp in", "which room was the lamp in"),
    ],
)
def test_typing_habits_do_not_matter(tokenizer, typed: str, meant: str) -> None:
    assert question_part(tokenizer, typed) == meant.split()


def test_other_words_are_unknown_not_an_error(tokenizer) -> None:
    assert question_part(tokenizer, "xylophone?") == ["<unk>", "?"]


def test_answers_decode_to_one_clean_word(tokenizer) -> None:
    ids = tokenizer.convert_tokens_to_ids(["yes", "<|im_end|>"])
    assert tokenizer.decode(ids, skip_special_tokens=True) == "yes"


def test_ids_follow_the_vocabulary(tokenizer) -> None:
    assert tokenizer.convert_ids_to_tokens(list(range(len(words())))) == words()


def test_the_template_supplies_a_system_prompt_only_where_none_is_given(tokenizer) -> None:
    user = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "what ?"}]}
    tail = (
        "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>what ?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )

    def render(*messages: dict[str, object]) -> str:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    assert render(user) == "<|im_start|>system\nyou are a robot .<|im_end|>\n" + tail
    system = {"role": "system", "content": [{"type": "text", "text": "see"}]}
    assert render(system, user) == "<|im_start|>system\nsee<|im_end|>\n" + tail
    assert render({"role": "system", "content": "see"}, user).startswith("<|im_start|>system\nsee<")
