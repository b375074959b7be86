"""StopRequest: a request that is made whichever thread the kernel hands the signal to."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import os, signal, sys, threading, time
from infinipot_ros.ros.stopping import StopRequest, end
stop = StopRequest(code=7)
stop.install()
"""


def run(body, timeout_s=60):
    """Run a program that begins with an installed StopRequest; return its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-c", START + body], capture_output=True, text=True, timeout=timeout_s
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_another_thread_receives_wakes_the_main_thread(name):
    body = f"""
stop.arm()
number = signal.{name}
def receive():
    time.sleep(0.3)  # the main thread is waiting by now
    signal.pthread_kill(threading.get_ident(), number)
thread = threading.Thread(target=receive)
thread.start()
print(stop.wait(), flush=True)
thread.join()
sys.exit(end(3))
"""
    assert run(body) == (3, "True\n", "")


def test_before_arming_a_signal_ends_the_process_on_the_spot():
    assert run("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)") == (7, "", "")


def test_an_end_that_takes_too_long_is_cut_short():
    body = "stop.arm()\nos.kill(os.getpid(), signal.SIGINT)\nstop.wait()\ntime.sleep(60)"
    assert run(body) == (7, "", "")


def test_a_second_signal_ends_the_process_on_the_spot():
    body = """
stop.arm()
os.kill(os.getpid(), signal.SIGINT)
print(stop.wait(), flush=True)
os.kill(os.getpid(), signal.SIGINT)
print("not reached")
"""
    assert run(body) == (7, "True\n", "")


def test_any_thread_may_ask_and_a_wait_may_end_without_a_request():
    body = """
stop.arm()
print(stop.requested(), stop.wait(0.01))
threading.Thread(target=stop.request).start()
print(stop.wait(), stop.requested())
sys.exit(end(0))
"""
    assert run(body) == (0, "False False\nTrue True\n", "")


def test_threads_that_are_still_busy_do_not_hold_up_the_end():
    body = "threading.Thread(target=time.sleep, args=(60,)).start()\nsys.exit(end(5))"
    assert run(body) == (5, "", "")
