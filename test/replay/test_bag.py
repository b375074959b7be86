"""Bags: what is written is read back, in both storages, raw and compressed."""

from __future__ import annotations

import numpy as np
import pytest
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from infinipot_ros.replay.bag import (
    COMPRESSED_TYPE,
    RAW_TYPE,
    BagError,
    ImageBag,
    write_image_bag,
)

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def images():
    """Return five images with stamps that a float would round."""
    rng = np.random.default_rng(1)
    flat = rng.integers(0, 256, (5, 1, 1, 3), np.uint8)
    pixels = np.broadcast_to(flat, (5, 24, 32, 3)).copy()
    return [(1764513600_000000001 + i * SECOND // 10, image) for i, image in enumerate(pixels)]


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("quality", [None, 95])
def test_images_come_back(tmp_path, images, storage, quality):
    path = tmp_path / "bag"
    count = write_image_bag(
        path, images, topic="/front/image", storage=storage, jpeg_quality=quality
    )
    assert count == 5
    with ImageBag(path) as bag:
        (topic,) = bag.topics()
        assert (topic.name, topic.count) == ("/front/image", 5)
        assert topic.type == (RAW_TYPE if quality is None else COMPRESSED_TYPE)
        read = list(bag.images())
    assert [item.stamp_ns for item in read] == [stamp for stamp, _ in images]
    assert {item.frame_id for item in read} == {"camera"}
    for item, (_, pixels) in zip(read, images, strict=True):
        out = item.payload.to_rgb().astype(int)
        np.testing.assert_allclose(out, pixels, atol=0 if quality is None else 4)


@pytest.fixture
def mixed_bag(tmp_path):
    """Return a zstd-compressed bag with words and an image topic whose stamps are zero."""
    store = get_typestore(Stores.ROS2_HUMBLE)
    types = store.types
    path = tmp_path / "mixed"
    writer = Writer(path, version=9, storage_plugin=StoragePlugin.SQLITE3)
    writer.set_compression(CompressionMode.MESSAGE, CompressionFormat.ZSTD)
    header = types["std_msgs/msg/Header"](
        types["builtin_interfaces/msg/Time"](sec=0, nanosec=0), "eye"
    )
    data = np.arange(2 * 4, dtype=np.uint8)
    image = types[RAW_TYPE](header, 2, 3, "mono8", 0, 4, data)
    with writer:
        words = writer.add_connection("/words", "std_msgs/msg/String", typestore=store)
        eye = writer.add_connection("/eye", RAW_TYPE, typestore=store)
        text = types["std_msgs/msg/String"]("hello")
        writer.write(words, 5, store.serialize_cdr(text, "std_msgs/msg/String"))
        writer.write(eye, 42, store.serialize_cdr(image, RAW_TYPE))
    return path


def test_other_topics_compression_and_zero_stamps(mixed_bag):
    with ImageBag(mixed_bag) as bag:
        assert [topic.name for topic in bag.topics()] == ["/eye"]
        (image,) = bag.images("/eye")
    assert image.stamp_ns == 42  # zero stamps: the time of recording
    assert image.frame_id == "eye"
    assert image.payload.step == 4  # row padding is kept as recorded
    np.testing.assert_array_equal(image.payload.to_rgb()[..., 0], [[0, 1, 2], [4, 5, 6]])


def test_a_topic_that_is_not_there_is_refused_with_those_that_are(mixed_bag):
    with ImageBag(mixed_bag) as bag, pytest.raises(BagError, match=r"'/nose'.*it has /eye"):
        next(bag.images("/nose"))


def test_a_bag_without_images_says_what_it_has(tmp_path):
    store = get_typestore(Stores.ROS2_HUMBLE)
    path = tmp_path / "words"
    with Writer(path, version=9) as writer:
        words = writer.add_connection("/words", "std_msgs/msg/String", typestore=store)
        text = store.types["std_msgs/msg/String"]("hello")
        writer.write(words, 5, store.serialize_cdr(text, "std_msgs/msg/String"))
    with ImageBag(path) as bag:
        assert bag.topics() == []
        with pytest.raises(BagError, match=r"only /words \(std_msgs/msg/String\)"):
            next(bag.images())


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_that_is_no_bag_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BagError, match=r"metadata\.yaml"), ImageBag(tmp_path / name):
        pass
