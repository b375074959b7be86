"""The command line `infinipot`; a command's module is imported when it is chosen."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from infinipot_ros import __version__

_COMMANDS = {
    "node": ("infinipot_ros.ros.run", "watch cameras and answer questions (the ROS 2 node)"),
    "ask": ("infinipot_ros.ros.ask", "ask a running node a question"),
    "camera": ("infinipot_ros.ros.camera", "publish RoomWorld, a video or a bag as a camera"),
    "demo": ("infinipot_ros.ros.demo", "camera, node and questions in one show"),
    "plan": ("infinipot_ros.planning.command", "how much memory a model, cache and passes take"),
    "bench": ("", "measure speed, compression, memory or constancy"),
}
_BENCHES = {
    "speed": ("infinipot_ros.bench.speed", "observe, time to first token, memory"),
    "compression": (
        "infinipot_ros.bench.compression",
        "InfiniPot-V's selection against a literal reading of its equations",
    ),
    "memory": (
        "infinipot_ros.bench.memory",
        "what each retention policy still remembers, by cap, delay and kind of stream",
    ),
    "plan": (
        "infinipot_ros.bench.plan_check",
        "the bytes of `infinipot plan` against those that a small model really takes",
    ),
    "soak": (
        "infinipot_ros.bench.soak",
        "thousands of blocks: does the cap hold, does memory grow",
    ),
}

_EPILOG = """\
try it:
  infinipot demo                                    see everything work, under three minutes
  infinipot camera --source roomworld               terminal 1
  infinipot node                                    terminal 2
  infinipot ask "did you see a cup?"                terminal 3
  infinipot plan --model Qwen/Qwen2.5-VL-3B-Instruct --device-memory 16GB

`infinipot COMMAND --help` explains a command; `infinipot node` takes ROS arguments only, such as
`--ros-args --params-file FILE -r image:=/front/image_raw`.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    Args:
        argv: arguments after the program's name; None takes `sys.argv`.
    """
    # Before torch is imported: OpenMP's default is that idle threads spin, which on cores that
    # several processes share slows all of them, many times over.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["node"] and not {"-h", "--help"} & set(arguments):
        from infinipot_ros.ros.run import main as run_node

        return run_node(arguments[1:])
    own, ros = _split_ros_arguments(arguments)
    args = _parser(own).parse_args(own)
    args.ros_args = ros
    try:
        code: int = importlib.import_module(args.module).run(args)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from infinipot_ros.core.errors import InfinipotError

        if isinstance(error, BrokenPipeError):
            return 1  # whoever read our output is gone, and so is the point
        if not isinstance(error, InfinipotError) and not type(error).__module__.startswith("rclpy"):
            raise
        # What a user can mend is a line, not a traceback.
        print(f"infinipot: {error}", file=sys.stderr)
        return 2
    return code


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser; only the chosen command's module is imported to declare its options."""
    parser = argparse.ArgumentParser(
        prog="infinipot",
        description="Ask a robot's camera stream questions, in constant memory.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module, text) in _COMMANDS.items():
        child = commands.add_parser(name, help=text, description=_sentence(text))
        if name == "bench":
            benches = child.add_subparsers(title="benches", metavar="BENCH", required=True)
            for bench, (bench_module, bench_text) in _BENCHES.items():
                leaf = benches.add_parser(bench, help=bench_text, description=_sentence(bench_text))
                _complete(leaf, bench_module, chosen=arguments[:2] == ["bench", bench])
        elif name == "node":
            child.epilog = "Parameters: `ros2 param describe` or config/infinipot.yaml."
            child.usage = "infinipot node [--ros-args ...]"
        else:
            _complete(child, module, chosen=arguments[:1] == [name])
    return parser


def _complete(parser: argparse.ArgumentParser, module: str, *, chosen: bool) -> None:
    if chosen:
        parser.set_defaults(module=module)
        importlib.import_module(module).add_arguments(parser)


def _split_ros_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Take `--ros-args ... [--]` out of the arguments."""
    if "--ros-args" not in arguments:
        return arguments, []
    start = arguments.index("--ros-args")
    end = arguments.index("--", start) if "--" in arguments[start:] else len(arguments)
    return arguments[:start] + arguments[end + 1 :], arguments[start:end]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


if __name__ == "__main__":
    sys.exit(main())
