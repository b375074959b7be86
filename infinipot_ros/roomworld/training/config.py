"""Hold every number of the training in one place."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelShape:
    """Size of the Qwen2.5-VL-class model. Head width is hidden_size / heads in this family."""

    hidden_size: int = 128
    layers: int = 6
    heads: int = 4
    kv_heads: int = 4
    feed_forward: int = 256
    rope_theta: float = 100_000.0
    mrope_section: tuple[int, int, int] = (10, 3, 3)
    """Rotary pairs for time, height, width. Time gets the fast and middle frequencies: without the
    middle ones the order of events is learnt slowly; the vision tower already tells the cell."""
    vision_depth: int = 3
    vision_hidden: int = 128
    vision_heads: int = 4
    vision_feed_forward: int = 256
    max_positions: int = 1280


@dataclass(frozen=True)
class VisionPlan:
    """How the vision tower learns. Progress is gated on held-out accuracy; steps only cap it."""

    scenes: int = 14_000
    views_per_scene: int = 3
    batch_size: int = 128
    learning_rate: float = 2e-3
    warmup_steps: int = 100
    weight_decay: float = 0.02
    check_every: int = 250
    steady_accuracy: float = 0.95
    """Worst of kind, colour, side and room at which the learning rate starts to fall."""
    max_steady_steps: int = 2500
    decay_steps: int = 1000
    final_accuracy: float = 0.985
    max_cycles: int = 2
    validation_scenes: int = 600


@dataclass(frozen=True)
class LanguagePlan:
    """How the language model learns over pooled vision tokens."""

    pool_scenes: int = 10_000
    validation_scenes: int = 2_000
    lengths: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 96, 256)
    """Curriculum of stream lengths, in temporal steps."""
    tokens_per_batch: int = 4200
    questions_per_stream: int = 24
    max_position_span: int = 1150
    """Largest temporal position that random gaps reach: streams are thinned out in use."""
    gap_share: float = 0.6
    thinned_share: float = 0.65
    """Share of the longer streams that are thinned out, which saves time."""
    thinned_to: float = 0.33
    """Share of the video tokens that these keep."""
    most_tokens: int = 864
    """Video tokens of a stream at most; longer ones are always thinned, to so many.
    What tells a long stream from a short one that looks long is how much there is to confuse."""
    longest: int = 3000
    """Steps up to which streams are made to look longer in the attention."""
    evicted_share: float = 0.2
    """Share of full-length streams that are asked after a random part of the tokens was evicted."""
    learning_rate: float = 2e-3
    warmup_steps: int = 200
    weight_decay: float = 0.02
    report_every: int = 100
    stage_accuracy: float = 0.93
    """Mean accuracy that opens the next length; the kinds about order are left out of it."""
    stage_floor: float = 0.8
    max_stage_steps: int = 300
    steady_accuracy: float = 0.93
    max_steady_steps: int = 900
    decay_steps: int = 4500
    later_decay_steps: int = 900
    """Steps of a cycle after the first."""
    min_decay: float = 0.02
    referent_weight: float = 0.5
    """Loss weight of the answer predicted at the referent word and at the end of the question."""
    history_weight: float = 0.9
    """Loss weight of "which kinds came earlier", predicted at object tokens of the third layer."""
    history_layer: int = 2
    naming_weight: float = 0.4
    """Loss weight of the words of a name, predicted at its last word after `naming_layer`."""
    naming_layer: int = 0
    facts_weight: float = 1.0
    """Loss weight of all that was seen of a thing, predicted at the last word of its name, one
    layer behind `history_layer`."""
    tied_layers: int = 3
    """Layers whose first half of the heads start with equal query and key projections."""
    final_accuracy: float = 0.965
    final_floor: float = 0.94
    max_cycles: int = 3
    validation_streams: int = 60
    validation_steps: int = 32


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the result, beside the code."""

    seed: int = 1
    threads: int = 1
    checkpoint_every: int = 200
    shape: ModelShape = field(default_factory=ModelShape)
    vision: VisionPlan = field(default_factory=VisionPlan)
    language: LanguagePlan = field(default_factory=LanguagePlan)

    def as_dict(self) -> dict[str, object]:
        """Return the configuration as plain dictionaries, for the log and the checkpoint."""
        return dataclasses.asdict(self)


def smoke_config(seed: int = 1) -> TrainConfig:
    """Return a configuration that runs every stage in seconds and learns nothing of use."""
    return TrainConfig(
        seed=seed,
        threads=1,
        checkpoint_every=2,
        vision=VisionPlan(
            scenes=24, views_per_scene=2, batch_size=8, check_every=2, steady_accuracy=0.0,
            max_steady_steps=2, decay_steps=2, final_accuracy=0.0, validation_scenes=8,
        ),
        language=LanguagePlan(
            pool_scenes=60, validation_scenes=40, lengths=(1, 2), tokens_per_batch=200,
            questions_per_stream=4, report_every=2, stage_accuracy=0.0, stage_floor=0.0,
            max_stage_steps=2, steady_accuracy=0.0, max_steady_steps=2, decay_steps=2,
            later_decay_steps=2, final_accuracy=0.0, final_floor=0.0, validation_streams=4,
            validation_steps=2,
        ),
    )  # fmt: skip
