"""Find the package's launch and configuration files, however the package was installed."""

from __future__ import annotations

from pathlib import Path


def share_directory() -> Path:
    """Return the folder that holds `launch/`, `config/` and `package.xml`.

    The folder is looked for upward from this file, so that sources find their own checkout and an
    installed copy (pip, pip --user, colcon) finds the `share/infinipot_ros` of its own prefix. No
    environment variable is needed: ROS wheels from PyPI set no AMENT_PREFIX_PATH.

    Raises:
        FileNotFoundError: the package was copied somewhere without its files.
    """
    for ancestor in Path(__file__).resolve().parents:
        if (ancestor / "package.xml").is_file() and (ancestor / "config").is_dir():
            return ancestor
        share = ancestor / "share" / "infinipot_ros"
        if (share / "package.xml").is_file():
            return share
    raise FileNotFoundError(
        f"no share/infinipot_ros above {__file__}: install the package (`pip install .` or colcon)"
    )
