"""Policies by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

from .base import CompressionPolicy, PolicyError
from .baselines import Full, Recent, Reservoir, SlidingWindow, Uniform
from .blend import Blend, Quota
from .coreset import Coreset
from .infinipot_v import InfiniPotV, Tar, Van
from .leverage import Leverage
from .multi_tar import MultiTar
from .novelty import Novelty

_CLASSES: tuple[type[CompressionPolicy], ...] = (
    InfiniPotV,
    Tar,
    Van,
    MultiTar,
    Leverage,
    Novelty,
    Coreset,
    Blend,
    Quota,
    Uniform,
    Reservoir,
    SlidingWindow,
    Recent,
    Full,
)
POLICIES: Mapping[str, type[CompressionPolicy]] = MappingProxyType({c.name: c for c in _CLASSES})
"""Policy classes by the name that a configuration uses."""


def policy_parameters(name: str) -> tuple[str, ...]:
    """Return the names of the parameters that a policy takes.

    Raises:
        PolicyError: unknown policy, listing those there are.
    """
    if name not in POLICIES:
        raise PolicyError(f"policy {name!r} is unknown: choose one of {', '.join(POLICIES)}")
    return tuple(f.name for f in fields(POLICIES[name]) if f.init)  # type: ignore[arg-type]


def make_policy(name: str, params: Mapping[str, object], seed: int) -> CompressionPolicy:
    """Create a fresh policy for one stream.

    Args:
        name: a key of `POLICIES`.
        params: parameters of that policy; those left out take their defaults.
        seed: for a policy that draws at random and finds no `seed` in `params`.

    Raises:
        PolicyError: unknown policy or parameter, or a value out of range, naming the valid ones.
    """
    known = policy_parameters(name)
    unknown = ", ".join(repr(key) for key in params if key not in known)
    if unknown:
        valid = f"it takes {', '.join(known)}" if known else "it takes none"
        raise PolicyError(f"policy {name!r} has no parameter {unknown}: {valid}")
    seeded = {"seed": seed} if "seed" in known else {}
    return POLICIES[name](**{**seeded, **params})
