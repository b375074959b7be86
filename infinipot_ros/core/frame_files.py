"""The files of a model folder that say how frames are prepared, whatever layout they follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FRAME_FILES = (
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)


def merged_frame_files(
    whole: Mapping[str, Any] | None,
    image: Mapping[str, Any] | None,
    video: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    """Return the content of these files as one, None where there is none of them.

    Keys of ``processor_config.json`` come first, then those of its ``image_processor`` and of
    ``preprocessor_config.json`` above them; what is for videos alone, from
    ``video_preprocessor_config.json``, is under ``video_processor``.

    Args:
        whole: content of ``processor_config.json``; None without the file, like the others.
        image: content of ``preprocessor_config.json``.
        video: content of ``video_preprocessor_config.json``.

    Raises:
        ValueError: a part is no object.
    """
    if whole is None and image is None and video is None:
        return None
    merged = dict(whole or {})
    merged.pop("chat_template", None)
    merged.update(_part(merged.pop("image_processor", None), "image_processor"))
    merged.update(image or {})
    for_video = {**_part(merged.get("video_processor"), "video_processor"), **(video or {})}
    if for_video:
        merged["video_processor"] = for_video
    return merged


def _part(value: Any, name: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{name} is {value!r}; it must be an object")
    return value or {}
