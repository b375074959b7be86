"""What `infinipot_ros.core` hands out, and what asking for it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from infinipot_ros import core


def fresh(code):
    """Run code in a fresh interpreter; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_export_is_there():
    assert all(getattr(core, name).__name__ == name for name in core.__all__)
    assert core.StreamEngine is core.engine.StreamEngine
    assert core.Worker is core.worker.Worker


def test_an_unknown_name_is_refused_as_by_any_module():
    with pytest.raises(AttributeError, match="has no attribute 'Motor'"):
        core.Motor  # noqa: B018
    with pytest.raises(ImportError, match="Motor"):
        from infinipot_ros.core import Motor  # noqa: F401


def test_torch_is_imported_with_the_engine_and_not_before():
    assert fresh(
        "import sys\n"
        "from infinipot_ros.core import EngineConfig, Frame, FrameError, images\n"
        "print('torch' in sys.modules)\n"
        "from infinipot_ros.core import StreamEngine\n"
        "print('torch' in sys.modules)\n"
    ) == ["False", "True"]
