"""How much memory a model, its cache and its passes take, from config files alone.

Arithmetic only: nothing here needs torch, so that a plan can be made on the robot before anything
is installed, and for a model that was never downloaded.
"""

from infinipot_ros.planning.plan import Load, Plan, make_plan
from infinipot_ros.planning.sizes import format_bytes, parse_bytes
from infinipot_ros.planning.source import KnownModel, find_model

__all__ = [
    "KnownModel",
    "Load",
    "Plan",
    "find_model",
    "format_bytes",
    "make_plan",
    "parse_bytes",
]
