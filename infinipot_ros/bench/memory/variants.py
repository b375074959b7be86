"""What is compared: policies as they are, and InfiniPot-V with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infinipot_ros.bench.memory.reshaped import Reshaped
from infinipot_ros.compression import POLICIES
from infinipot_ros.core import EngineConfig, StreamEngine
from infinipot_ros.core.adapter import ModelAdapter

FULL = "full"
BASE = "infinipot_v"
_MAX_QUESTION_TOKENS, _MAX_NEW_TOKENS = 32, 4


@dataclass(frozen=True)
class Variant:
    """One line of a table.

    Attributes:
        name: what it is called there.
        policy: key of `POLICIES`.
        params: parameters of the policy.
        engine: fields of `EngineConfig` that differ from the benchmark's.
        reshaped: whether the policy is shown reshaped tokens in place of their provenance.
    """

    name: str
    policy: str
    params: Mapping[str, object] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    reshaped: bool = False

    def config(self, *, max_tokens: int, block_steps: int, seed: int) -> EngineConfig:
        """Return the engine's configuration at a cap.

        Raises:
            ConfigError: the variant cannot work at this cap.
        """
        return EngineConfig(
            max_tokens=max_tokens,
            policy=self.policy,
            policy_params=self.params,
            block_steps=block_steps,
            fps=2.0,
            max_question_tokens=_MAX_QUESTION_TOKENS,
            max_new_tokens=_MAX_NEW_TOKENS,
            seed=seed,
            **self.engine,
        )

    def start(self, adapter: ModelAdapter, config: EngineConfig, cols: int) -> StreamEngine:
        """Make an engine for one stream whose steps have `cols` patch columns.

        Raises:
            ConfigError: the variant cannot work with this model at this cap.
        """
        engine = StreamEngine(adapter, config)
        if self.reshaped:
            # The registry holds what users may choose, and nobody should choose this.
            engine._policy = Reshaped(engine._policy, cols)
        return engine


def policy_variants(names: tuple[str, ...]) -> tuple[Variant, ...]:
    """Return policies with the parameters that they have by default."""
    return tuple(Variant(name, name) for name in names)


def bounded_policies() -> tuple[str, ...]:
    """Return the names of all policies under a cap, the method of the paper first."""
    return tuple(name for name in POLICIES if name != FULL)


def _infinipot(name: str, **params: object) -> Variant:
    return Variant(name, BASE, params)


def _engine(name: str, **fields: Any) -> Variant:
    return Variant(name, BASE, engine=fields)


_AS_IS = Variant(BASE, BASE)

ABLATIONS: Mapping[str, tuple[Variant, ...]] = {
    "score": (
        _AS_IS,
        _infinipot("TaR alone", tar_ratio=1.0),
        _infinipot("VaN alone", tar_ratio=0.0),
    ),
    "pooling of VaN": (
        _AS_IS,
        _infinipot("no pooling", pooling=False),
        _infinipot("VaN alone", tar_ratio=0.0),
        _infinipot("VaN alone, no pooling", tar_ratio=0.0, pooling=False),
    ),
    "tar_ratio (0.5)": (
        _infinipot("VaN alone", tar_ratio=0.0),
        _infinipot("tar_ratio 0.25", tar_ratio=0.25),
        _AS_IS,
        _infinipot("tar_ratio 0.75", tar_ratio=0.75),
        _infinipot("TaR alone", tar_ratio=1.0),
    ),
    "recent_ratio (0.125)": (
        _infinipot("recent_ratio 0.03125", recent_ratio=0.03125),
        _infinipot("recent_ratio 0.0625", recent_ratio=0.0625),
        _AS_IS,
        _infinipot("recent_ratio 0.25", recent_ratio=0.25),
    ),
    "retain_ratio (0.75)": (
        _engine("retain_ratio 0.25", retain_ratio=0.25),
        _engine("retain_ratio 0.5", retain_ratio=0.5),
        _AS_IS,
        _engine("retain_ratio 0.9", retain_ratio=0.9),
    ),
    "key_space (content)": (_AS_IS, _infinipot("keys rotated", key_space="rotated")),
    "tar_reference (recent)": (_AS_IS, _infinipot("TaR to previous", tar_reference="previous")),
    "provenance": (_AS_IS, Variant("reshaped", BASE, reshaped=True)),
    "positions (compact)": (_AS_IS, _engine("positions absolute", positions="absolute")),
}
"""Groups of variants; a variant of the same name in two groups is the same one and runs once."""


def ablation_variants() -> tuple[Variant, ...]:
    """Return every variant of the ablations once, InfiniPot-V as it is first."""
    found = {variant.name: variant for group in ABLATIONS.values() for variant in group}
    return tuple(sorted(found.values(), key=lambda variant: variant.name != BASE))
