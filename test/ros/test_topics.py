"""Topics as cameras really offer them: late, compressed, silent, of a wrong type, renamed."""

from __future__ import annotations

import time

import numpy as np
import pytest
import yaml
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String

from infinipot_ros.msg import MemoryStatus
from infinipot_ros.replay.bag import to_jpeg

NAME = "/robot/watcher"
PIXELS = np.full((48, 64, 3), 120, np.uint8)


@pytest.fixture(scope="module")
def node(module_stage, tiny_model):
    """Start a renamed node in a namespace with four cameras, none of which publishes yet."""
    return module_stage.node(
        remap=["__ns:=/robot", "__node:=watcher", "rear:=/back/picture"],
        model=tiny_model(),
        image_topics="[front/image_raw, rear, silent, wrong]",
        memory__max_tokens=96,
        sampling__fps=20.0,
        sampling__block_steps=1,
        status__period_s=0.1,
        warn_after_s=3.0,
    )


@pytest.fixture(scope="module")
def latest(graph, node, wait_until):
    """Return the newest status by camera, once there is one of each."""
    messages = graph.collect(MemoryStatus, f"{NAME}/status")

    def by_camera():
        return {message.camera: message for message in messages}

    wait_until(lambda: len(by_camera()) == 4, what="a status of each camera")
    return by_camera


def play(publisher, message, until, wait_until):
    """Publish the message with new stamps until a condition holds."""

    def step():
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(time.time_ns(), 10**9)
        publisher.publish(message)
        time.sleep(0.03)
        return until()

    wait_until(step, what="frames in memory")


def test_cameras_are_named_after_their_topics(latest):
    assert set(latest()) == {"front", "rear", "silent", "wrong"}
    assert {message.frame_age for message in latest().values()} == {-1.0}


def test_a_topic_that_appears_late_is_watched(graph, latest, image_message, wait_until):
    publisher = graph.publisher(Image, "/robot/front/image_raw")
    play(
        publisher, image_message(PIXELS), lambda: latest()["front"].frames_encoded >= 4, wait_until
    )
    graph.node.destroy_publisher(publisher)


def test_a_remapped_compressed_topic_is_watched(graph, latest, wait_until):
    publisher = graph.publisher(CompressedImage, "/back/picture")
    packed = to_jpeg(PIXELS)
    message = CompressedImage(format=packed.format, data=packed.data.tobytes())
    play(publisher, message, lambda: latest()["rear"].frames_encoded >= 4, wait_until)
    graph.node.destroy_publisher(publisher)


def test_a_topic_that_changes_its_type_goes_on(graph, latest, node, wait_until):
    before = latest()["front"].frames_encoded
    wait_until(
        lambda: graph.node.count_publishers("/robot/front/image_raw") == 0, what="publisher gone"
    )
    publisher = graph.publisher(CompressedImage, "/robot/front/image_raw")
    packed = to_jpeg(PIXELS)
    message = CompressedImage(format=packed.format, data=packed.data.tobytes())
    play(publisher, message, lambda: latest()["front"].frames_encoded > before + 4, wait_until)
    assert "/robot/front/image_raw (CompressedImage)" in node.output()


def test_cameras_keep_their_memories_apart(graph, latest):
    assert latest()["silent"].frames_received == 0
    answer = graph.query(NAME, question="what color is the mug ?", camera="silent")
    assert not answer.success
    assert "nothing" in answer.message
    assert graph.query(NAME, question="what color is the mug ?", camera="rear").success


def test_a_silent_topic_is_reported_with_what_is_there(graph, node, wait_until):
    graph.publisher(String, "/robot/wrong")
    graph.publisher(Image, "/robot/other/image")
    wait_until(lambda: "no image on /robot/silent" in node.output(), what="a warning")
    warning = next(
        line for line in node.output().splitlines() if "no image on /robot/silent" in line
    )
    assert "Nobody publishes it" in warning
    assert "image_topics" in warning
    assert "silent:=TOPIC" in warning


def test_warnings_name_types_and_topics_found(graph, stage, tiny_model, tmp_path, wait_until):
    overrides = {"qos_overrides": {"/seen": {"subscription": {"reliability": "reliable"}}}}
    file = tmp_path / "overrides.yaml"
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": overrides}}))
    kept = [graph.publisher(String, "/words"), graph.publisher(Image, "/seen", reliable=False)]
    child = stage.node(
        model=tiny_model(),
        memory__max_tokens=96,
        image_topics="[words, seen]",
        params_file=file,
        warn_after_s=2.0,
    )
    wait_until(lambda: "no image on /words" in child.output(), what="a warning about /words")
    wait_until(lambda: "no image on /seen" in child.output(), what="a warning about /seen")
    text = child.output()
    assert "It carries std_msgs/msg/String, which is no image type" in text
    assert "/seen (Image)" in text
    assert "qos_overrides./seen.subscription.reliability" in text
    (mine,) = graph.node.get_subscriptions_info_by_topic("/seen")
    assert mine.qos_profile.reliability.name == "RELIABLE"
    assert all(graph.node.destroy_publisher(publisher) for publisher in kept)
