"""Middleware set-up of our own commands: images arrive whole and at full rate on one host."""

from __future__ import annotations

import os

from infinipot_ros.resources import share_directory

PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")


def use_image_profile() -> None:
    """Choose the package's Fast DDS profile, unless the user chose a profile or another middleware.

    Fast DDS as it comes loses most best-effort images larger than its 0.5 MB shared-memory segment.
    Call it before rclpy creates its first participant.
    """
    if os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp") != "rmw_fastrtps_cpp":
        return
    if any(os.environ.get(name) for name in PROFILE_VARIABLES):
        return
    profile = share_directory() / "config" / "fastdds_images.xml"
    if profile.is_file():
        os.environ[PROFILE_VARIABLES[0]] = str(profile)
