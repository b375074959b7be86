"""`infinipot bench memory`: the benchmark that tells retention policies apart."""

from infinipot_ros.bench.memory.command import run
from infinipot_ros.bench.memory.options import add_arguments

__all__ = ["add_arguments", "run"]
