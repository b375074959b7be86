"""Worker: accounting, order, bounds and ends, with a real engine slowed down at will."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from infinipot_ros.core import (
    BusyError,
    ConfigError,
    EngineConfig,
    Frame,
    QuestionError,
    QueueFullError,
    StoppedError,
    StreamEngine,
    Worker,
)
from infinipot_ros.models import load_adapter

QUESTION = "what color is the mug ?"
SECOND = 1_000_000_000
WAIT = 60.0  # long enough for the slowest machine; nothing here waits that long when it works


class Gate:
    """Holds the model's thread inside `observe` or `ask` until opened."""

    def __init__(self, monkeypatch, name):
        self.entered, self.open = threading.Event(), threading.Event()
        real = getattr(StreamEngine, name)

        def held(engine, *args, **kwargs):
            self.entered.set()
            assert self.open.wait(WAIT)
            return real(engine, *args, **kwargs)

        monkeypatch.setattr(StreamEngine, name, held)


@pytest.fixture(scope="module")
def adapter(tiny_model):
    return load_adapter(str(tiny_model()), device="cpu")


@pytest.fixture
def make(adapter):
    workers = []

    def make(cameras=("front",), *, start=True, max_new_tokens=8, **settings):
        config = EngineConfig(max_tokens=96, max_new_tokens=max_new_tokens)
        engines = {camera: StreamEngine(adapter, config) for camera in cameras}
        worker = Worker(engines, **{"fps": 2.0, **settings})
        workers.append(worker)
        if start:
            worker.start()
        return worker

    yield make
    for worker in workers:
        assert worker.stop(WAIT)


def send(worker, count, *, camera="front", start=0, fps=2.0, size=(56, 84)):
    for index in range(start, start + count):
        stamp = round(index * SECOND / fps) + SECOND
        if worker.accept(camera, stamp):
            image = np.full((*size, 3), index % 256, np.uint8)
            worker.submit(Frame(image, stamp, camera))


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.005)


def balanced(status):
    return status.sampled == status.encoded + status.dropped + status.pending


def test_a_question_covers_the_newest_frame(make):
    worker = make()
    send(worker, 21)
    answer = worker.ask(QUESTION).result(WAIT)
    assert answer.stamp_ns == 20 * SECOND // 2 + SECOND
    status = worker.status("front")
    assert status.encoded == status.sampled - status.dropped
    assert status.pending == 0


def test_sampling_counts_every_message(make):
    worker = make()
    send(worker, 90, fps=30.0)  # 3 s at 30 Hz, 2 frames a second wanted
    status = worker.status("front")
    assert status.received == 90
    assert status.sampled == 6
    assert balanced(status)


def test_newest_frames_win_and_drops_are_counted(make, monkeypatch):
    gate = Gate(monkeypatch, "observe")
    worker = make(max_pending_frames=8)
    send(worker, 8)
    assert gate.entered.wait(WAIT)
    send(worker, 20, start=8)
    status = worker.status("front")
    assert status.drops_by_reason == {"overwritten": 12}
    assert status.pending == 16
    assert balanced(status)
    gate.open.set()
    answer = worker.ask(QUESTION).result(WAIT)
    assert answer.stamp_ns == 27 * SECOND // 2 + SECOND
    status = worker.status("front")
    assert (status.encoded, status.dropped, status.pending) == (16, 12, 0)
    assert status.memory.oldest_stamp_ns < status.memory.newest_stamp_ns


def test_rejected_frames_are_counted_by_reason(make):
    worker = make()
    assert worker.accept("front", 0)
    assert worker.status("front").pending == 1
    worker.reject("front", "encoding")
    status = worker.status("front")
    assert status.drops_by_reason == {"encoding": 1}
    assert status.pending == 0


def test_one_question_too_many_is_refused_at_once(make, monkeypatch):
    gate = Gate(monkeypatch, "ask")
    worker = make(max_pending_questions=2)
    send(worker, 2)
    tickets = [worker.ask(QUESTION)]
    assert gate.entered.wait(WAIT)
    tickets += [worker.ask(QUESTION) for _ in range(2)]
    with pytest.raises(QueueFullError, match="2 questions are waiting"):
        worker.ask(QUESTION)
    tickets[1].cancel()  # a cancelled question makes room
    assert tickets[1].result(WAIT).finish_reason == "cancelled"
    tickets.append(worker.ask(QUESTION))
    gate.open.set()
    assert tickets[0].result(WAIT).text == tickets[2].result(WAIT).text
    assert tickets[3].result(WAIT).finish_reason in ("stop", "length")


def test_questions_and_resets_are_carried_out_in_order(make):
    worker = make(max_pending_questions=50)
    send(worker, 4)
    order = []

    def note(number):
        return lambda _: order.append(number) if number not in order else None

    tickets = [worker.ask(QUESTION, on_text=note(number)) for number in range(20)]
    worker.reset()
    assert all(ticket.result(WAIT).n_tokens > 0 for ticket in tickets)
    assert order == list(range(20))
    assert worker.status("front").memory.tokens_retained == 0


def test_latency_counts_waiting_and_encoding(make, monkeypatch):
    gate = Gate(monkeypatch, "observe")
    worker = make()
    send(worker, 8)
    assert gate.entered.wait(WAIT)
    started = time.monotonic()
    ticket = worker.ask(QUESTION)
    time.sleep(0.2)
    gate.open.set()
    answer = ticket.result(WAIT)
    assert 0.2 <= answer.first_token_s <= answer.latency_s <= time.monotonic() - started


def test_cancel_while_its_frames_are_encoded_is_served_at_once(make, monkeypatch):
    gate = Gate(monkeypatch, "observe")
    worker = make()
    send(worker, 2)
    ticket = worker.ask(QUESTION)
    assert gate.entered.wait(WAIT)
    ticket.cancel()
    assert ticket.result(WAIT).finish_reason == "cancelled"
    gate.open.set()


def test_a_reset_that_waits_too_long_says_so(make, monkeypatch):
    gate = Gate(monkeypatch, "observe")
    worker = make()
    send(worker, 8)
    assert gate.entered.wait(WAIT)
    with pytest.raises(BusyError, match=r"busy for 0.05 s; the reset is carried out after"):
        worker.reset(timeout_s=0.05)
    gate.open.set()
    until(lambda: worker.status("front").memory.tokens_retained == 0)


def test_cancel_while_answering_stops_before_the_next_token(make):
    worker = make(max_new_tokens=64)
    send(worker, 2)
    reached, go_on = threading.Event(), threading.Event()

    def hold(_):
        reached.set()
        assert go_on.wait(WAIT)

    ticket = worker.ask(QUESTION, on_text=hold)
    assert reached.wait(WAIT)
    ticket.cancel()
    assert not ticket.done()
    go_on.set()
    answer = ticket.result(WAIT)
    assert (answer.finish_reason, answer.n_tokens) == ("cancelled", 1)


def test_timeout_ends_waiting_and_decoding(make, monkeypatch):
    gate = Gate(monkeypatch, "observe")
    worker = make()
    send(worker, 8)
    assert gate.entered.wait(WAIT)
    ticket = worker.ask(QUESTION, timeout_s=0.01)
    time.sleep(0.05)
    gate.open.set()
    answer = ticket.result(WAIT)
    assert (answer.finish_reason, answer.text) == ("timeout", "")


def test_a_failing_listener_does_not_harm(make):
    worker = make()
    send(worker, 2)

    def bad(_):
        raise ZeroDivisionError

    assert worker.ask(QUESTION, on_text=bad).result(WAIT).n_tokens > 0
    assert worker.ask(QUESTION).result(WAIT).n_tokens > 0


def test_a_failing_block_is_counted_and_the_worker_lives(make, monkeypatch):
    problems = []
    worker = make(on_error=problems.append)
    real = StreamEngine.observe

    def broken(engine, *args):
        raise MemoryError("out of memory")

    monkeypatch.setattr(StreamEngine, "observe", broken)
    send(worker, 8)
    until(lambda: worker.status("front").dropped == 8)
    assert "out of memory" in problems[0]
    monkeypatch.setattr(StreamEngine, "observe", real)
    send(worker, 8, start=8)
    assert worker.ask(QUESTION).result(WAIT).stamp_ns is not None
    assert balanced(worker.status("front"))


def test_cameras_have_memories_of_their_own(make):
    worker = make(("front", "rear"))
    send(worker, 8, camera="front")
    send(worker, 2, camera="rear", start=50)
    assert worker.ask(QUESTION).result(WAIT).stamp_ns == 7 * SECOND // 2 + SECOND
    assert worker.ask(QUESTION, camera="rear").result(WAIT).stamp_ns == 51 * SECOND // 2 + SECOND
    worker.reset("rear")
    assert worker.status("rear").memory.tokens_retained == 0
    assert worker.status("front").memory.tokens_retained > 0
    with pytest.raises(QuestionError, match="nothing has been observed"):
        worker.ask(QUESTION, camera="rear").result(WAIT)
    with pytest.raises(QuestionError, match="'top' is unknown; there is 'front', 'rear'"):
        worker.ask(QUESTION, camera="top")


def test_reset_drops_waiting_frames_with_a_reason(make):
    worker = make()
    send(worker, 3)
    worker.reset()
    status = worker.status("front")
    assert status.drops_by_reason == {"reset": 3}
    assert balanced(status)


def test_stop_ends_everything(make, monkeypatch):
    """Waiting callers are told at once, also behind questions that have ended already."""
    gate = Gate(monkeypatch, "ask")
    worker = make()
    send(worker, 3)
    running = worker.ask(QUESTION)
    assert gate.entered.wait(WAIT)
    dead, expired, waiting = (worker.ask(QUESTION, timeout_s=t) for t in (0.0, 0.001, 0.0))
    dead.cancel()
    send(worker, 3, start=3)
    reset = threading.Thread(target=lambda: outcome.append(_refusal(worker.reset)))
    outcome = []
    reset.start()
    until(lambda: len(worker._jobs) == 4)
    time.sleep(0.01)
    assert expired.end_if_dead()
    assert not worker.stop(0.01)
    with pytest.raises(StoppedError):
        waiting.result(WAIT)
    reset.join(WAIT)
    assert outcome == [StoppedError]
    assert not running.done()
    gate.open.set()
    assert worker.stop(WAIT)
    assert running.result(WAIT).finish_reason == "cancelled"
    assert dead.result(WAIT).finish_reason == "cancelled"
    assert expired.result(WAIT).finish_reason == "timeout"
    for refused in (lambda: worker.ask(QUESTION), worker.reset):
        with pytest.raises(StoppedError):
            refused()
    status = worker.status("front")
    assert status.stopped
    assert status.drops_by_reason == {"stopped": 3}
    assert (status.pending, status.sampled) == (0, 6)


def _refusal(action):
    try:
        action()
    except Exception as error:
        return type(error)
    return None


def test_a_flood_from_many_threads(make):
    """Ten clients at once while frames arrive: every call ends, and the counters add up."""
    worker = make(("front", "rear"), max_pending_questions=4, max_new_tokens=4)
    outcomes, stop = [], threading.Event()

    def camera(name):
        index = 0
        while not stop.is_set():
            send(worker, 1, camera=name, start=index)
            index += 1
            time.sleep(0.001)

    def client(seed):
        for number in range(15):
            try:
                ticket = worker.ask(QUESTION, camera=("front", "rear")[(seed + number) % 2])
                if number % 3 == 0:
                    ticket.cancel()
                outcomes.append(ticket.result(WAIT).finish_reason)
            except (QueueFullError, QuestionError) as refusal:
                outcomes.append(type(refusal).__name__)
                time.sleep(0.002)

    cameras = [threading.Thread(target=camera, args=(n,)) for n in ("front", "rear")]
    clients = [threading.Thread(target=client, args=(i,)) for i in range(10)]
    for thread in cameras + clients:
        thread.start()
    for thread in clients:
        thread.join(WAIT)
        assert not thread.is_alive()
    stop.set()
    for thread in cameras:
        thread.join(WAIT)
    assert len(outcomes) == 150
    assert "cancelled" in outcomes
    assert {"length", "stop"} & set(outcomes)
    for name in ("front", "rear"):
        worker.reset(name)
        status = worker.status(name)
        assert status.pending == 0
        assert balanced(status)
        assert status.encoded > 0


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"fps": 0.0}, "fps is 0.0"),
        ({"max_pending_frames": 3}, "max_pending_frames is 3; a block has 8 frames"),
        ({"max_pending_questions": 0}, "max_pending_questions is 0"),
        ({"question_timeout_s": 0.0}, "question_timeout_s is 0.0"),
    ],
)
def test_refused_settings(make, settings, message):
    with pytest.raises(ConfigError, match=message):
        make(start=False, **settings)
