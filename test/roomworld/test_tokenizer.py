"""The tokenizer takes what people type and knows every word that RoomWorld uses."""

from __future__ import annotations

import numpy as np
import pytest

from infinipot_ros.roomworld import QUESTION_KINDS, REGIMES, RoomWorld
from infinipot_ros.roomworld.phrasings import ALL, PHRASINGS, phrase
from infinipot_ros.roomworld.training.plans import BRANCH_LENGTH
from infinipot_ros.roomworld.vocabulary import words

S = 1_000_000_000


def question_part(tokenizer, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False).input_ids)


def test_no_word_of_any_question_or_answer_is_unknown(tokenizer) -> None:
    rng = np.random.default_rng(0)
    for seed in range(60):
        world = RoomWorld(seed, tour_s=30, regime=REGIMES[seed % len(REGIMES)])
        for kind in QUESTION_KINDS:
            question = world.ask(kind, 30 * S, rng)
            if question is None:
                continue
            assert question_part(tokenizer, question.text) == question.text.split()
            assert question_part(tokenizer, question.answer) == [question.answer]


def test_no_word_of_any_phrasing_is_unknown(tokenizer) -> None:
    for form in PHRASINGS:
        for number in ALL:
            text = phrase(form, number, "red cup in the kitchen", "black clock").text
            assert "<unk>" not in question_part(tokenizer, text)
            assert question_part(tokenizer, text) == text.split()


def test_the_longest_question_fits_a_branch(tokenizer) -> None:
    longest = max(
        len(question_part(tokenizer, phrase(form, number, *things).text))
        for form in PHRASINGS
        for number in ALL
        for things in [("red cup in the kitchen",) if form == "color" else ("red cup", "red hat")]
    )
    # <|vision_end|>, the question, <|im_end|>, <|im_start|>, assistant, the answer
    assert longest + 5 == BRANCH_LENGTH


@pytest.mark.parametrize(
    "typed, meant",
    [
        ("Did you see a cup?", "did you see a cup ?"),
        ("  What colour was the Hat ?", "what color was the hat ?"),
        ("WAS THE KEY BEFORE THE BOX?!", "was the key before the box ? !"),
        ("Which room was the lamp in", "which room was the lamp in"),
        ("Tell me, was the red cup there?", "tell me , was the red cup there ?"),
    ],
)
def test_typing_habits_do_not_matter(tokenizer, typed: str, meant: str) -> None:
    assert question_part(tokenizer, typed) == meant.split()


def test_other_words_are_unknown_not_an_error(tokenizer) -> None:
    assert question_part(tokenizer, "xylophone?") == ["<unk>", "?"]


def test_answers_decode_to_one_clean_word(tokenizer) -> None:
    ids = tokenizer.convert_tokens_to_ids(["yes", "<|im_end|>"])
    assert tokenizer.decode(ids, skip_special_tokens=True) == "yes"


def test_new_words_come_last() -> None:
    """The ids of the others stay, and with them their directions in a model trained before."""
    assert words()[-1] == "kinds"


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
