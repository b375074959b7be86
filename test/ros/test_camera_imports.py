"""`infinipot camera` starts at once: nothing that it does needs torch."""

from __future__ import annotations

import subprocess
import sys

_CAMERA = """\
import argparse, sys
import numpy as np
from infinipot_ros.replay.payload import RawPayload
from infinipot_ros.replay.sources import open_source
from infinipot_ros.ros.camera import _message, _shape, add_arguments

parser = argparse.ArgumentParser()
add_arguments(parser)
open_source("roomworld", tour_s=5.0)
payload = RawPayload.from_pixels(np.zeros((8, 8, 3), np.uint8), "rgb8")
shaped = _shape(payload, parser.parse_args(["--size", "16x12", "--compressed"]))
print(type(_message(shaped, 1, "camera")).__name__, "torch" in sys.modules)
"""


def test_a_camera_that_scales_and_compresses_does_without_torch():
    done = subprocess.run(
        [sys.executable, "-c", _CAMERA], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["CompressedImage", "False"], done.stderr
