"""`infinipot demo`: a camera process, a node process, questions, and whether it all really ran."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from infinipot_ros.core.types import EMBEDDED_MODEL
from infinipot_ros.ros.children import Child
from infinipot_ros.ros.dds import use_image_profile
from infinipot_ros.ros.demo_options import add_arguments
from infinipot_ros.ros.stopping import StopRequest, end

if TYPE_CHECKING:
    from infinipot_ros.ros.demo_plan import PlannedQuestion

__all__ = ["add_arguments", "run"]

INTERRUPTED = 130
START_S = 120.0
"""Longest time from the start to the first image in memory, seconds."""

_TOUR_S = 75.0
_WORLD_TIMES_S = (12.0, 24.0, 36.0, 48.0, 60.0, 72.0, 86.0, 100.0, 114.0)
_VIDEO_TIMES_S = (10.0, 18.0, 26.0, 34.0, 42.0, 50.0)
_FIRST_STAMP = re.compile(r"first stamp (\d+) ns")
_GAVE_UP = re.compile(r"autostart: \w+ failed")
_NS = 1_000_000_000


def run(args: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    stop = StopRequest(code=INTERRUPTED)
    stop.install()
    if not args.keep:
        # Nobody else's topics, nobody else's network. With --keep it runs where the user's own
        # commands will look for it.
        os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    use_image_profile()
    with tempfile.TemporaryDirectory(prefix="infinipot-demo-") as folder:
        os.environ.setdefault("ROS_LOG_DIR", folder)
        stop.arm()
        code = _Demo(args, stop, Path(folder)).run()
    return end(code)


def _times(world: bool) -> tuple[float, ...]:
    return _WORLD_TIMES_S if world else _VIDEO_TIMES_S


@dataclass
class _Tally:
    """What happened to the questions; `asked_s` are seconds after the first image."""

    answered: int = 0
    right: int = 0
    judged: int = 0
    asked_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class _Demo:
    """One run of the demo, from the first process to the verdict."""

    def __init__(self, args: argparse.Namespace, stop: StopRequest, folder: Path) -> None:
        from infinipot_ros.ros.demo_observer import Observer
        from infinipot_ros.ros.demo_view import View

        self._args = args
        self._stop = stop
        self._view = View()
        self._tally = _Tally()
        self._finished = False
        self._observer = Observer(args.ros_args)
        self._world = not (args.video or args.bag)
        self._view.heading("infinipot demo: a camera, a ROS 2 node that remembers, questions")
        self._view.say()
        node, camera = self._node_arguments(), self._camera_arguments()
        self._children = [
            Child("node", node, folder / "node.log"),
            Child("camera", camera, folder / "camera.log"),
        ]

    def run(self) -> int:
        """Play, ask, judge; the children are ended in any case."""
        try:
            if self._start():
                self._ask_all()
                self._finished = not self._stop.requested()
                if self._finished:
                    self._show_memory()
                if self._args.keep and not self._stop.requested():
                    self._stay()
                self._check_memory()
        finally:
            codes = self._end_children()
            self._observer.close()
            self._view.end_live_line()
        for child, code in zip(self._children, codes, strict=True):
            if code != 0:
                self._tally.faults.append(f"the {child.name} process ended with exit code {code}")
        return self._verdict()

    def _node_arguments(self) -> list[str]:
        args = self._args
        values: dict[str, object] = {
            "model": args.model,
            "memory.max_tokens": args.max_tokens,
            "memory.policy": args.policy,
            "status.period_s": 0.5,
        }
        if args.model == EMBEDDED_MODEL:  # as in config/roomworld.yaml
            values |= {"cpu_threads": 1, "question.max_dialogue_tokens": 64}
        out = ["node", "--ros-args"]
        for name, value in values.items():
            out += ["-p", f"{name}:={value}"]
        return out

    def _camera_arguments(self) -> list[str]:
        args = self._args
        out = ["camera", "--wait"]
        if self._world:
            out += ["--source", "roomworld", "--seed", str(args.seed), "--tour", str(_TOUR_S)]
            self._view.say(f"  camera   RoomWorld {args.seed}, 10 images a second, best effort")
        else:
            out += ["--source", args.video or args.bag, "--loop"]
            if args.bag_topic:
                out += ["--bag-topic", args.bag_topic]
            self._view.say(f"  camera   {args.video or args.bag}, in a loop, best effort")
        self._view.say(
            f"  node     model {args.model}, at most {args.max_tokens} tokens in memory, "
            f"policy {args.policy}\n"
        )
        return out

    def _start(self) -> bool:
        """Wait until images are in memory; say why if they never are."""
        self._view.say("  starting both processes ...")
        deadline = time.monotonic() + START_S
        while self._observer.status is None or self._observer.status.frames_encoded == 0:
            ended = [child for child in self._children if child.exit_code() is not None]
            if _GAVE_UP.search(self._children[0].output()):
                ended = self._children[:1]
            if ended or time.monotonic() > deadline:
                child = ended[0] if ended else self._children[0]
                said = "\n      ".join(child.output().splitlines()[-12:])
                self._tally.faults.append(
                    f"no image reached the memory; the {child.name} said:\n      {said}"
                )
                return False
            if self._stop.wait(0.1):
                return False
        return True

    def _ask_all(self) -> None:
        first_ns = self._first_stamp()
        for question in self._plan():
            if not self._watch_until(first_ns, question.time_s):
                return
            elapsed_s = (time.time_ns() - first_ns) / _NS
            self._view.question(elapsed_s, question.text)
            self._tally.asked_s.append(elapsed_s)
            result = self._observer.ask(question.text, self._stop)
            if result is None or not result.success:
                reason = "no reply" if result is None else result.message
                self._view.say(f"        no answer: {reason}")
                self._tally.faults.append(f"{question.text!r} was not answered: {reason}")
                continue
            self._tally.answered += 1
            if question.truth:
                self._tally.judged += 1
                self._tally.right += result.answer == question.truth
            self._view.answer(
                result.answer or "(nothing)",
                question.truth,
                f"in {result.latency_s:.2f} s, confidence {result.confidence:.2f}",
            )
        self._watch_until(first_ns, (time.time_ns() - first_ns) / _NS + 2.0)

    def _plan(self) -> Sequence[PlannedQuestion]:
        from infinipot_ros.ros import demo_plan

        times_s = [time_s / self._args.pace for time_s in _times(self._world)]
        if self._world:
            from infinipot_ros.roomworld import RoomWorld

            world = RoomWorld(seed=self._args.seed, tour_s=_TOUR_S)
            return demo_plan.plan_for_world(world, times_s, self._args.seed)
        texts = demo_plan.REAL_VIDEO_QUESTIONS
        if self._args.model == EMBEDDED_MODEL:
            self._view.say(
                "  note: the embedded model knows RoomWorld only. Here it shows that real images\n"
                "  flow and fit; for answers that mean something give --model a real one.\n"
            )
            texts = demo_plan.ROOMWORLD_QUESTIONS
        return demo_plan.plan_without_truth(texts, times_s)

    def _first_stamp(self) -> int:
        found = _FIRST_STAMP.search(self._children[1].output())
        return int(found.group(1)) if found else time.time_ns()

    def _watch_until(self, first_ns: int, due_s: float) -> bool:
        """Show the memory until a time after the first image; False if the demo is to end."""
        while True:
            elapsed_s = (time.time_ns() - first_ns) / _NS
            if self._observer.status is not None:
                self._view.status(self._observer.status, elapsed_s)
            if elapsed_s >= due_s:
                return True
            for child in self._children:
                if child.exit_code() is not None:
                    self._tally.faults.append(f"the {child.name} process ended in mid-demo")
                    return False
            if self._stop.wait(min(0.2, due_s - elapsed_s)):
                return False

    def _show_memory(self) -> None:
        from infinipot_ros.ros.demo_history import History
        from infinipot_ros.ros.demo_plot import show

        history = History.of(self._observer.readings(), self._first_stamp(), self._tally.asked_s)
        problem = show(history, self._view, self._args.plot)
        if problem:
            self._tally.faults.append(problem)

    def _check_memory(self) -> None:
        self._tally.faults += self._observer.broken_promises()
        status = self._observer.status
        if status is not None and status.compressions == 0:
            self._tally.faults.append("the memory was never compressed")

    def _stay(self) -> None:
        self._view.end_live_line()
        self._view.say("\n  Still running. In another terminal, for example:\n")
        if sys.prefix != sys.base_prefix:
            self._view.say(f"    . {sys.prefix}/bin/activate")
        self._view.say('    infinipot ask "How many kinds of objects did you see?"')
        if shutil.which("ros2"):
            self._view.say(
                "    ros2 service call /infinipot/query infinipot_ros/srv/Query "
                "\"{question: 'what did you see first ?'}\"\n"
                "    ros2 topic echo /infinipot/status\n"
                "    ros2 service call /infinipot/reset std_srvs/srv/Trigger"
            )
        self._view.say("\n  Ctrl-C ends both processes.\n")
        self._stop.wait()

    def _end_children(self) -> list[int]:
        for child in self._children:
            child.interrupt()
        return [child.stop() for child in self._children]

    def _verdict(self) -> int:
        tally, status = self._tally, self._observer.status
        if self._stop.requested() and not self._finished:
            self._view.say("\n  stopped before the end")
            return INTERRUPTED
        if status is not None:
            self._view.say(
                f"\n  {status.frames_encoded} frames encoded, {status.frames_dropped} dropped, "
                f"{status.compressions} compressions; never above {self._observer.peak_tokens} of "
                f"{status.tokens_cap} tokens and {self._observer.peak_bytes / 1e6:.2f} of "
                f"{status.bytes_cap / 1e6:.2f} MB"
            )
        if tally.asked_s:
            self._view.say(
                f"  {tally.answered} of {len(tally.asked_s)} questions answered" + self._score()
            )
        for fault in tally.faults:
            self._view.say(f"  fault: {fault}")
        if tally.faults or not tally.answered:
            self._view.say()
            self._view.heading("  FAILED: not everything ran")
            return 1
        self._view.say()
        self._view.heading("  Everything ran.")
        return 0

    def _score(self) -> str:
        if not self._tally.judged:
            return ""
        return f", {self._tally.right} of {self._tally.judged} right"
