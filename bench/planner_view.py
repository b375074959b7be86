"""A planner's view of the node: three clients ask at once while images arrive at 30 Hz, 640x480.

    python bench/planner_view.py [--model DIR] [--seconds 30]

Prints how the questions ended, the worst latency of parameter and lifecycle calls meanwhile, and
how long a cancel takes from the request to the result. Exit code 0 if every call got an answer or
a refusal and every bar holds.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from typing import Any

from _stage import NODE, WAIT_S, Client, node_arguments, promises_kept, stage, until

BAR_S = 0.5
CLIENTS = 3
QUESTIONS = ("What do you see now?", "What did you see first?", "Did you see a ball?")


def main() -> int:
    """Run the bench; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="roomworld", help="model that watches (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=288)
    parser.add_argument("--max-new-tokens", type=int, default=64, help="longest answer")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to ask")
    parser.add_argument(
        "--pause", type=float, default=0.1, help="seconds a client thinks between two questions"
    )
    parser.add_argument("--cancels", type=int, default=20)
    args = parser.parse_args()
    with stage() as (client, start):
        start(
            *node_arguments(
                autostart="false",
                model=args.model,
                memory__max_tokens=args.max_tokens,
                question__max_new_tokens=args.max_new_tokens,
                cpu_threads=1,
                status__period_s=0.2,
            )
        )
        start("camera", "--rate", 30, "--size", "640x480")
        statuses = client.statuses()
        loading = measure_loading(client)
        until(lambda: statuses and statuses[-1].blocks >= 2, "two blocks in memory")
        ends, took = measure(client, args)
        return report(ends, took | {"while loading": loading}, statuses)


def measure_loading(client: Client) -> list[float]:
    """Configure and activate; return the latencies of calls while the model loads, seconds."""
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState, GetState

    # Something harmless first: when it has been answered, the two have discovered each other.
    client.call(GetState, f"{NODE}/get_state", GetState.Request())

    def change(label: str) -> None:
        request = ChangeState.Request(transition=Transition(label=label))
        name = f"{NODE}/change_state"
        if not client.call(ChangeState, name, request, resend_s=WAIT_S).success:
            raise RuntimeError(f"{label} failed")

    change("configure")
    took: dict[str, list[float]] = {"parameter": [], "lifecycle": []}
    loader = threading.Thread(target=change, args=("activate",))
    loader.start()
    while loader.is_alive():
        _time_calls(client, took)
        time.sleep(0.02)
    return took["parameter"] + took["lifecycle"]


def measure(
    client: Client, args: argparse.Namespace
) -> tuple[Counter[str], dict[str, list[float]]]:
    """Ask from several threads, time the other calls meanwhile, then time cancels."""
    from rclpy.action import ActionClient

    from infinipot_ros.action import Ask
    from infinipot_ros.srv import Query

    ends: Counter[str] = Counter()
    took: dict[str, list[float]] = {"question": [], "parameter": [], "lifecycle": [], "cancel": []}
    stop = threading.Event()

    def ask(index: int) -> None:
        request = Query.Request(question=QUESTIONS[index % len(QUESTIONS)])
        while not stop.is_set():
            started = time.monotonic()
            response = client.call(Query, f"{NODE}/query", request)
            took["question"].append(time.monotonic() - started)
            ends["answered" if response.success else f"refused: {response.message}"] += 1
            time.sleep(args.pause)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(CLIENTS)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + args.seconds
    while time.monotonic() < deadline:
        _time_calls(client, took)
        time.sleep(0.05)
    action: Any = ActionClient(client.node, Ask, f"{NODE}/ask")
    until(action.server_is_ready, "the action")
    for _ in range(args.cancels):
        seconds = _time_cancel(action, args.max_new_tokens)
        if seconds is None:
            ends["action finished before its cancel"] += 1
        else:
            took["cancel"].append(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return ends, took


def _time_calls(client: Client, took: dict[str, list[float]]) -> None:
    from lifecycle_msgs.srv import GetState
    from rcl_interfaces.srv import GetParameters

    started = time.monotonic()
    names = GetParameters.Request(names=["memory.max_tokens", "model"])
    client.call(GetParameters, f"{NODE}/get_parameters", names)
    took["parameter"].append(time.monotonic() - started)
    started = time.monotonic()
    state = client.call(GetState, f"{NODE}/get_state", GetState.Request())
    took["lifecycle"].append(time.monotonic() - started)
    if state.current_state.label not in ("inactive", "activating", "active"):
        raise RuntimeError(f"the node is {state.current_state.label}")


def _time_cancel(action: Any, max_new_tokens: int) -> float | None:
    """Return seconds from the cancel to the result; None if the answer was complete before."""
    from action_msgs.msg import GoalStatus

    from infinipot_ros.action import Ask

    goal = Ask.Goal(question=QUESTIONS[0], max_new_tokens=max_new_tokens)
    sent = action.send_goal_async(goal)
    until(sent.done, "the goal's acceptance")
    finished = sent.result().get_result_async()
    started = time.monotonic()
    sent.result().cancel_goal_async()
    until(finished.done, "the result")
    seconds = time.monotonic() - started
    cancelled = finished.result().status == GoalStatus.STATUS_CANCELED
    return seconds if cancelled else None


def report(ends: Counter[str], took: dict[str, list[float]], statuses: list[Any]) -> int:
    """Print the figures; return 0 if every bar holds."""
    newest, oldest = statuses[-1], statuses[0]
    seconds = (newest.header.stamp.sec - oldest.header.stamp.sec) or 1
    rate = (newest.frames_received - oldest.frames_received) / seconds
    print(f"images received: {rate:.1f} a second; {newest.compressions} compressions")
    for end, count in ends.most_common():
        print(f"  {count:5d}  {end}")
    for name, values in took.items():
        if values:
            values = sorted(values)
            middle, worst = values[len(values) // 2], values[-1]
            print(f"{name:>13}: median {middle:.3f} s, worst {worst:.3f} s of {len(values)}")
    kept = promises_kept(statuses)
    print(f"every status accounts for its frames and stays below its caps: {kept}")
    slow = [
        name
        for name in ("while loading", "parameter", "lifecycle", "cancel")
        if took[name] and max(took[name]) > BAR_S
    ]
    print(f"bar of {BAR_S} s: " + (f"missed by {', '.join(slow)}" if slow else "holds"))
    return 0 if ends["answered"] and kept and not slow else 1


if __name__ == "__main__":
    sys.exit(main())
