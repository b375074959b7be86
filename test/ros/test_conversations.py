"""Conversations over real DDS: clients that interleave, both doors, the command line, refusals."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid

import numpy as np
import pytest
from sensor_msgs.msg import Image
from std_srvs.srv import Trigger

from infinipot_ros.core import EngineConfig, QuestionError, StreamEngine, Worker
from infinipot_ros.models import load_adapter
from infinipot_ros.msg import MemoryStatus
from infinipot_ros.ros.settings import in_parameter_names

NAME = "/infinipot"
QUESTIONS = ("what color is the mug ?", "where was it before ?", "when did you see it last ?")
OTHERS = (QUESTIONS[0], "is the red one there ?", QUESTIONS[2])


@pytest.fixture(scope="module")
def sees(graph, module_stage, endless_model, image_message, wait_until):
    """Start a node and show it some frames; return how to show them again, after a reset.

    Nothing is shown afterwards, so that the same dialogue has the same answers each time.
    """
    module_stage.node(
        model=endless_model(),
        memory__max_tokens=96,
        sampling__fps=20.0,
        question__max_new_tokens=8,
        status__period_s=0.1,
    )
    statuses = graph.collect(MemoryStatus, f"{NAME}/status")
    publisher = graph.publisher(Image, "image")
    message = image_message(np.full((56, 84, 3), 90, np.uint8))

    def show():
        def step():
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(time.time_ns(), 10**9)
            publisher.publish(message)
            time.sleep(0.06)
            return graph.query(question="mug ?", max_new_tokens=1).success

        wait_until(step, what="frames in memory")
        count = len(statuses) + 5  # what is still on its way arrives within these
        wait_until(lambda: len(statuses) > count, what="five statuses")
        wait_until(lambda: len({m.frames_received for m in statuses[-4:]}) == 1, what="silence")
        assert graph.query(question="mug ?", max_new_tokens=1).success  # takes in what waits

    show()
    return show


def through_service(client, conversation_id, question):
    answer = client.query(question=question, conversation_id=conversation_id)
    assert answer.success, answer.message
    return answer.answer, answer.confidence


def through_action(client, conversation_id, question, wait_until):
    _, finished, _ = client.ask(NAME, question=question, conversation_id=conversation_id)
    wait_until(finished.done, what="an answer")
    result = finished.result().result
    assert result.success, result.message
    return result.answer, result.confidence


def dialogue(client, questions):
    """Ask the questions in a conversation of their own, nothing in between."""
    new = uuid.uuid4().hex
    return [through_service(client, new, question) for question in questions]


def test_two_clients_that_interleave_do_not_see_each_other(graph, sees):
    other = type(graph)()
    try:
        mine, theirs = [], []
        for question, another in zip(QUESTIONS, OTHERS, strict=True):
            mine.append(through_service(graph, "mine", question))
            theirs.append(through_service(other, "theirs", another))
    finally:
        other.close()
    assert mine == dialogue(graph, QUESTIONS)
    assert theirs == dialogue(graph, OTHERS)
    assert mine[2] != theirs[2]  # one question, after other turns
    assert mine[2] != through_service(graph, "", QUESTIONS[2])


def test_one_id_is_one_conversation_through_service_and_action(graph, sees, wait_until):
    new = uuid.uuid4().hex
    answers = [
        through_service(graph, new, QUESTIONS[0]),
        through_action(graph, new, QUESTIONS[1], wait_until),
        through_service(graph, new, QUESTIONS[2]),
    ]
    assert answers == dialogue(graph, QUESTIONS)


def test_the_command_line_follows_up(graph, sees):
    new, texts = uuid.uuid4().hex, []
    for question in QUESTIONS[:2]:
        command = [sys.executable, "-m", "infinipot_ros.cli", "ask", question, "--quiet"]
        done = subprocess.run(
            [*command, "--conversation", new],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout.strip())
    texts.append(through_service(graph, new, QUESTIONS[2])[0])
    assert texts == [text for text, _ in dialogue(graph, QUESTIONS)]


def test_an_id_that_is_too_long_is_refused(graph, sees):
    answer = graph.query(question=QUESTIONS[0], conversation_id="x" * 200)
    assert not answer.success
    assert "conversation_id has 200 characters; at most 128" in answer.message


def test_a_reset_starts_the_dialogue_anew(graph, sees):
    through_service(graph, "tour", QUESTIONS[0])
    assert graph.call(Trigger, f"{NAME}/reset").success
    sees()
    assert through_service(graph, "tour", QUESTIONS[1]) == dialogue(graph, QUESTIONS[1:])[0]


def test_a_node_without_room_for_dialogues_says_what_to_set(tiny_model):
    adapter = load_adapter(str(tiny_model()), device="cpu")
    engine = StreamEngine(adapter, EngineConfig(max_tokens=96, max_dialogue_tokens=0))
    with pytest.raises(QuestionError) as refused:
        Worker({"front": engine}, fps=2.0).ask(QUESTIONS[0], conversation_id="tour")
    message = in_parameter_names(str(refused.value))
    assert "conversation_id is 'tour', but question.max_dialogue_tokens is 0" in message
    assert message.endswith("or set question.max_dialogue_tokens")
