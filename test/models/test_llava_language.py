"""What language models LLaVA's families may hold: their prompts, keys, and who is refused."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from infinipot_ros.core import ModelError
from infinipot_ros.models import llava
from infinipot_ros.models.families import FAMILIES

NAMES = ["llava_onevision", "llava_next_video"]
QUESTION = "where is the mug, and where is <video> ?"
both = pytest.mark.parametrize("family", NAMES)


def _adapter(family, *, change=None, tokenizer=None):
    """A scaled-down model's adapter; `change` edits the config, a tokenizer replaces its own."""
    import transformers

    made = import_module(f"infinipot_ros.models.scaled.{family}").scaled()
    if tokenizer is not None:
        tokenizer.chat_template = made.tokenizer.chat_template
        made.config.video_token_index = tokenizer.convert_tokens_to_ids("<video>")
        made.config.text_config.vocab_size = len(tokenizer)
    if change is not None:
        change(made.config)
    model = getattr(transformers, FAMILIES[family].library)(made.config).eval()
    return getattr(llava, FAMILIES[family].adapter)(
        family,
        model=model,
        tokenizer=tokenizer or made.tokenizer,
        processor_config=made.preprocessor,
    )


def _library_prompt(adapter, question, video_tokens, system=None):
    """Ids of the whole prompt as the library's processor makes them: one text, tokenised once."""
    content = [{"type": "video"}, {"type": "text", "text": question}]
    messages = [{"role": "user", "content": content}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": [{"type": "text", "text": system}]})
    tokenizer = adapter._tokenizer
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    head, tail = text.split("<video>")
    return tokenizer(head + "<video>" * video_tokens + tail, return_tensors="pt").input_ids


# -- the prompt ----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("system", [None, "You watch a room."])
def test_the_prompt_is_the_text_that_the_template_makes(family, system):
    adapter = _adapter(family)
    question = "where is the mug ?"
    whole = _library_prompt(adapter, question, 1, system)[0].tolist()
    video = adapter._tokenizer.convert_tokens_to_ids("<video>")
    assert whole == [*adapter.prefix_ids(system), video, *adapter.question_ids(question)]
    # What is typed cannot forge a template's token.
    assert video not in adapter.question_ids(QUESTION)
    assert adapter.count_question_tokens(QUESTION) == len(QUESTION)


def _llama_tokenizer(legacy):
    """A tokenizer that sets a space before a text, as Llama's, Vicuna's and Mistral's do."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AddedToken, LlamaTokenizer

    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    words += [chr(code) for code in range(33, 127)]
    merges = [("\u2581", letter) for letter in "ASUwo"] + [("w", "h"), ("\u2581w", "h")]
    words += [first + second for first, second in merges]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = LlamaTokenizer(vocab=vocabulary, merges=merges, legacy=legacy)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_tokens(AddedToken("<video>", special=True, normalized=False))
    return tokenizer


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("system", [None, "who are you?"])
def test_a_prompt_in_pieces_has_no_spaces_that_the_whole_has_not(legacy, system):
    tokenizer = _llama_tokenizer(legacy)
    token = tokenizer.convert_tokens_to_ids("<video>")
    ours = _adapter("llava_next_video", tokenizer=tokenizer)
    for question in ("what is where?", " who ?", "a"):
        whole = _library_prompt(ours, question, 2, system)[0].tolist()
        video = [token] * 2
        assert whole == [*ours.prefix_ids(system), *video, *ours.question_ids(question)]
    assert whole[0] == tokenizer.bos_token_id


# -- refusals ------------------------------------------------------------------------------------


def _windowed_mistral(config):
    from transformers import MistralConfig

    config.text_config = MistralConfig(
        vocab_size=config.text_config.vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        sliding_window=16,
    )


def _partial_rotation(config):
    from transformers import PhiConfig

    config.text_config = PhiConfig(
        vocab_size=config.text_config.vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        bos_token_id=1,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    )


def _text(**changes):
    def change(config):
        for name, value in changes.items():
            setattr(config.text_config, name, value)

    return change


@pytest.mark.parametrize(
    "family, change, words",
    [
        (
            "llava_next_video",
            _windowed_mistral,
            "2 of sliding_attention, among 2 .*sliding_window, set that to false or null",
        ),
        (
            "llava_onevision",
            _text(layer_types=["full_attention", "sliding_attention"], sliding_window=16),
            "1 of sliding_attention, among 2 .*use_sliding_window",
        ),
        (
            "llava_next_video",
            _text(
                rope_parameters={
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [1.0] * 8,
                    "long_factor": [2.0] * 8,
                    "original_max_position_embeddings": 1024,
                }
            ),
            "rope_type 'longrope'; its keys cannot be moved",
        ),
        (
            "llava_next_video",
            _partial_rotation,
            "rotates 8 of 16 channels",
        ),
    ],
    ids=["mistral", "qwen2", "longrope", "partial"],
)
def test_language_models_that_cannot_be_capped_are_refused(family, change, words):
    with pytest.raises(ModelError, match=words):
        _adapter(family, change=change)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
            "rope_theta": 1e4,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_stretched_frequencies_are_those_of_the_keys(rope):
    """A key moved elsewhere equals a key made there, whatever stretches the frequencies."""
    adapter = _adapter("llava_next_video", change=_text(rope_parameters=rope))
    rotary = adapter._decoder.rotary_emb
    keys = torch.randn(1, 1, 5, 16, generator=torch.Generator().manual_seed(0))
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    def made_at(positions):
        cos, sin = rotary(keys, positions)
        return apply_rotary_pos_emb(keys, keys, cos, sin)[1]

    old, new = torch.tensor([[900, 901, 950, 960, 3000]]), torch.tensor([[7, 8, 9, 10, 2047]])
    moved = adapter.rotary.move(made_at(old), old[None, None], new[None, None])
    torch.testing.assert_close(moved, made_at(new), atol=1e-5, rtol=0)


def test_a_tokenizer_without_the_video_token_is_refused():
    with pytest.raises(ModelError, match=r"no token 5000.*video_token_index"):
        _adapter(
            "llava_onevision", change=lambda config: setattr(config, "video_token_index", 5000)
        )
