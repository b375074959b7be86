"""One node, one camera: frames in, status, answers, refusals, cancel, reset."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import GetParameters
from sensor_msgs.msg import Image
from std_srvs.srv import Trigger

from infinipot_ros.msg import MemoryStatus
from infinipot_ros.srv import Query

NAME = "/infinipot"
QUEUE = 2
QUESTION = "what color is the mug ?"


@pytest.fixture(scope="module")
def statuses(graph, module_stage, endless_model, wait_until):
    """Start the node and a camera at 30 Hz; return the status messages as they come."""
    module_stage.node(
        model=endless_model(layers=8),
        memory__max_tokens=96,
        sampling__fps=10.0,
        question__max_new_tokens=4000,
        queue__questions=QUEUE,
        status__period_s=0.2,
    )
    module_stage.start("camera", "--rate", "30", "--size", "640x480")
    messages = graph.collect(MemoryStatus, f"{NAME}/status")
    wait_until(
        lambda: messages and messages[-1].compressions >= 2, what="two compressions from the start"
    )
    return messages


def test_every_sampled_frame_is_accounted_for_and_the_cap_holds(statuses):
    assert all(
        m.frames_sampled == m.frames_encoded + m.frames_dropped + m.frames_pending for m in statuses
    )
    assert all(m.tokens_retained <= m.tokens_cap == 96 for m in statuses)
    assert all(0 < m.bytes_used <= m.bytes_cap for m in statuses)
    assert len({m.bytes_cap for m in statuses}) == 1
    newest = statuses[-1]
    assert newest.frames_received > newest.frames_sampled > 0
    assert newest.camera == "camera"
    assert newest.policy == "multi_tar"
    assert newest.frame_age >= 0.0
    assert newest.encode_ms > 0.0


def test_service_answers_about_frames_up_to_now(graph, statuses):
    before_s = time.time()
    answer = graph.query(question=QUESTION, max_new_tokens=4)
    assert answer.success, answer.message
    assert answer.message == ""
    assert len(answer.answer.split()) == 4
    assert 0.0 < answer.confidence <= 1.0
    assert 0 < answer.tokens_retained <= 96
    assert answer.latency_s > 0.0
    # The newest frame received is part of it: a partly filled block is flushed for a question.
    assert answer.stamp.sec + answer.stamp.nanosec * 1e-9 > before_s - 30.0


def test_action_streams_the_text_so_far(graph, statuses, wait_until):
    _, finished, texts = graph.ask(NAME, question=QUESTION, max_new_tokens=400)
    wait_until(finished.done)
    outcome = finished.result()
    assert outcome.status == GoalStatus.STATUS_SUCCEEDED
    assert outcome.result.success, outcome.result.message
    assert len(texts) >= 2  # best effort as to the last ones: the result may overtake them
    assert all(outcome.result.answer.startswith(text) for text in texts)


def test_cancel_stops_in_mid_answer(graph, statuses, wait_until):
    handle, finished, texts = graph.ask(NAME, question=QUESTION)
    wait_until(lambda: texts, what="the first token")
    handle.cancel_goal_async()
    wait_until(finished.done)
    outcome = finished.result()
    assert outcome.status == GoalStatus.STATUS_CANCELED
    assert not outcome.result.success
    written = int(re.fullmatch(r"cancelled after (\d+) tokens", outcome.result.message)[1])
    assert 0 < written < 4000


def test_time_limit_ends_a_question(graph, statuses):
    answer = graph.query(question=QUESTION, timeout_s=0.3)
    assert not answer.success
    assert "time limit" in answer.message
    assert "0.3" in answer.message


@pytest.mark.parametrize(
    "request_fields, words",
    [
        ({"question": "   "}, ["empty"]),
        ({"question": "mug " * 500}, ["500", "128", "question.max_tokens"]),
        ({"question": QUESTION, "camera": "rear"}, ["'rear'", "'camera'"]),
        ({"question": QUESTION, "max_new_tokens": 5000}, ["5000", "4000"]),
        ({"question": QUESTION, "timeout_s": -1.0}, ["timeout_s", "-1"]),
        ({"question": QUESTION, "timeout_s": float("nan")}, ["timeout_s", "nan"]),
        ({"question": QUESTION, "conversation_id": "a" * 129}, ["conversation_id", "129", "128"]),
    ],
)
def test_questions_that_cannot_be_asked_are_refused_with_the_reason(
    graph, statuses, request_fields, words
):
    answer = graph.query(**request_fields)
    assert not answer.success
    assert answer.answer == ""
    assert all(word in answer.message for word in words), answer.message


def test_the_action_refuses_with_the_same_words(graph, statuses, wait_until):
    _, finished, _ = graph.ask(NAME, question="")
    wait_until(finished.done)
    assert finished.result().status == GoalStatus.STATUS_ABORTED
    assert finished.result().result.message == graph.query(question="").message


def test_one_question_too_many_is_refused_and_the_others_are_answered(graph, statuses):
    request = Query.Request(question=QUESTION, max_new_tokens=400, timeout_s=80.0)
    pending = [graph.call_async(Query, f"{NAME}/query", request) for _ in range(QUEUE + 6)]
    answers = [result() for result in pending]
    refused = [answer for answer in answers if not answer.success]
    assert refused
    assert all("waiting" in answer.message for answer in refused), refused
    assert sum(answer.success for answer in answers) >= QUEUE


def test_parameter_and_lifecycle_calls_are_answered_while_questions_wait(graph, statuses):
    stop = threading.Event()
    outcomes = []

    def ask_again_and_again():
        while not stop.is_set():
            outcomes.append(graph.query(question=QUESTION, max_new_tokens=50))

    clients = [threading.Thread(target=ask_again_and_again) for _ in range(3)]
    for client in clients:
        client.start()
    names = GetParameters.Request(names=["memory.max_tokens"])
    try:
        for _ in range(10):
            values = graph.call(GetParameters, f"{NAME}/get_parameters", names, timeout_s=20.0)
            assert values.values[0].integer_value == 96
            assert graph.call(GetState, f"{NAME}/get_state", timeout_s=20.0).current_state.id == 3
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert outcomes
    assert all(item.success or "waiting" in item.message for item in outcomes), outcomes


def test_malformed_images_are_skipped_and_counted(graph, statuses, image_message, wait_until):
    publisher = graph.publisher(Image, "image")
    wait_until(lambda: publisher.get_subscription_count() > 0)
    before = statuses[-1].frames_dropped

    def counted():
        # Best effort: any one of them may be lost, and sampling passes over most.
        publisher.publish(image_message(np.zeros((8, 8, 3), np.uint8), encoding="no_such_encoding"))
        return statuses[-1].frames_dropped > before

    wait_until(counted, what="a counted drop")
    graph.node.destroy_publisher(publisher)
    answer = graph.query(question=QUESTION, max_new_tokens=2)
    assert answer.success, answer.message


def test_reset_forgets(graph, statuses, wait_until):
    assert statuses[-1].compressions > 0
    response = graph.call(Trigger, f"{NAME}/reset")
    assert response.success
    assert "camera" in response.message
    wait_until(lambda: statuses[-1].compressions == 0, what="a status from after the reset")


def test_live_parameters_change_and_others_are_refused(graph, statuses):
    assert graph.set_parameter("question.timeout_s", 45.0).successful
    refusals = {
        ("memory.max_tokens", 5000): ["memory.max_tokens", "clean"],
        ("memory.retain_ratio", 1.0): ["memory.retain_ratio", "1.0"],
        ("question.timeout_s", -3.0): ["question.timeout_s", "-3.0", "3600"],
        ("question.timeout_s", "long"): ["question.timeout_s", "long"],
        ("queue.questions", 3): ["queue.questions"],
    }
    for (name, value), words in refusals.items():
        result = graph.set_parameter(name, value)
        assert not result.successful
        assert all(word in result.reason for word in words), result.reason
