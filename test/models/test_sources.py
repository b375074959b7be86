"""What a model's small files say, whichever of the library's layouts they follow."""

from __future__ import annotations

import json

import pytest

from infinipot_ros.core import ModelError
from infinipot_ros.models.sources import ModelFiles


@pytest.fixture
def model(tmp_path):
    """Return a maker of a model's files from their contents."""

    def write(**contents):
        (tmp_path / "config.json").write_text("{}")
        for name, content in contents.items():
            file = name.replace("__", ".")
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / file).write_text(text)
        return ModelFiles.of(str(tmp_path))

    return write


NAMED = [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]


@pytest.mark.parametrize(
    "contents, template",
    [
        ({"tokenizer_config__json": {"chat_template": "A"}}, "A"),
        ({"tokenizer_config__json": {"chat_template": NAMED}}, "D"),
        ({"chat_template__json": {"chat_template": "B"}}, "B"),
        ({"chat_template__json": {"chat_template": {"default": "B", "tools": "T"}}}, "B"),
        ({"processor_config__json": {"chat_template": "P"}}, "P"),
        ({"chat_template__jinja": "C\n"}, "C\n"),
        (
            {
                "tokenizer_config__json": {"chat_template": "A"},
                "chat_template__json": {"chat_template": "B"},
            },
            "B",
        ),
        (
            {"chat_template__json": {"chat_template": "B"}, "chat_template__jinja": "C"},
            "C",
        ),
        ({"chat_template__json": {}, "tokenizer_config__json": {"chat_template": "A"}}, "A"),
    ],
)
def test_the_template_is_found_where_the_library_keeps_it(model, contents, template):
    assert model(**contents).chat_template() == template


@pytest.mark.parametrize("nothing", [None, "", [], {}, [{"name": "tools", "template": "T"}], 3])
def test_a_template_that_is_none_is_refused(model, nothing):
    files = model(tokenizer_config__json={"chat_template": nothing})
    with pytest.raises(ModelError, match=r"no chat template: .*tokenizer_config\.json"):
        files.chat_template()


def test_the_older_layout_of_frames(model):
    files = model(preprocessor_config__json={"size": {"height": 7}, "image_mean": [1, 2, 3]})
    assert files.processor_config() == {"size": {"height": 7}, "image_mean": [1, 2, 3]}


def test_the_newer_layout_of_frames_is_merged(model):
    files = model(
        processor_config__json={
            "chat_template": "C",
            "image_seq_len": 64,
            "patch_size": 1,
            "image_processor": {"size": 5, "patch_size": 2},
            "video_processor": {"fps": 1, "num_frames": 8},
        },
        preprocessor_config__json={"patch_size": 3},
        video_preprocessor_config__json={"fps": 2},
    )
    assert files.processor_config() == {
        "image_seq_len": 64,
        "size": 5,
        "patch_size": 3,
        "video_processor": {"fps": 2, "num_frames": 8},
    }


@pytest.mark.parametrize("text, words", [("{", "broken"), ("[]", "holds no object")])
def test_a_broken_file_is_named(model, text, words):
    with pytest.raises(ModelError, match=rf"video_preprocessor_config\.json is .*{words}"):
        model(video_preprocessor_config__json=text).processor_config()


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"chat_template\.jinja is broken"):
        ModelFiles.of(str(tmp_path)).chat_template()
