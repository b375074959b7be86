"""Teach the vision tower to write words into its tokens.

The classification heads are the language model's own word embeddings (cosine times a learned
scale). Object tokens so become sums of word directions, which the language model can read at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from infinipot_ros.roomworld.scenes import random_room, random_scene, trained
from infinipot_ros.roomworld.training.config import TrainConfig, VisionPlan
from infinipot_ros.roomworld.training.forward import encode_steps
from infinipot_ros.roomworld.training.journal import Journal
from infinipot_ros.roomworld.training.views import CLEAR, IGNORE, NO_KIND, Photographer, View
from infinipot_ros.roomworld.training.workers import ordered_map
from infinipot_ros.roomworld.vocabulary import COLORS, CORRIDOR, KINDS, ROOMS, SIDES

_PLACES = (*ROOMS, CORRIDOR)
_CHUNK = 200
_OBJECT_SHARES = (0.08, 0.3, 0.22, 0.16, 0.12, 0.07, 0.05)
"""Share of scenes with 0, 1, ... objects."""
_TRAIN_STREAM, _VALIDATION_STREAM, _ORDER_STREAM = 10, 11, 12


class LabelledSteps(NamedTuple):
    """Steps and the labels of their tokens."""

    frames: Tensor
    """uint8 [n, 2, 120, 120, 3]"""
    kinds: Tensor
    """int8 [n, 9]"""
    colors: Tensor
    """int8 [n, 9]"""
    places: Tensor
    """int8 [n], index of room or corridor."""
    clear: Tensor
    """bool [n], both frames show the whole scene."""


class _Job(NamedTuple):
    seed: tuple[int, ...]
    scenes: int
    views: int


class VisionStage:
    """Train `model.model.visual` and the word embeddings; resumable at any step."""

    def __init__(self, model: Any, word_ids: dict[str, int], config: TrainConfig) -> None:
        self._plan: VisionPlan = config.vision
        self._config = config
        self._visual = model.model.visual
        self._words = model.get_input_embeddings().weight
        vocabularies = ((*KINDS, "nothing"), tuple(COLORS), SIDES, _PLACES)
        self._groups = [torch.tensor([word_ids[word] for word in group]) for group in vocabularies]
        self._scales = nn.Parameter(torch.full((len(vocabularies),), 8.0))
        self._trained: list[Tensor] = [*self._visual.parameters(), self._words]
        groups: list[dict[str, Any]] = [
            {"params": self._trained},
            {"params": [self._scales], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(
            groups,
            lr=self._plan.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=self._plan.weight_decay,
        )
        self.step = 0
        self.cycle = 0
        self.decay_from: int | None = None
        self.done = False
        self._loss_now = 0.0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside the model."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "scales": self._scales.detach().clone(),
            "step": self.step,
            "cycle": self.cycle,
            "decay_from": self.decay_from,
            "done": self.done,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            self._scales.copy_(state["scales"])
        self.step, self.cycle = state["step"], state["cycle"]
        self.decay_from, self.done = state["decay_from"], state["done"]

    def prepare(self) -> None:
        """Draw the training and validation steps; the same for every run with this seed."""
        plan, seed, processes = self._plan, self._config.seed, self._config.threads
        self._train = draw_steps(
            (seed, _TRAIN_STREAM), plan.scenes, plan.views_per_scene, processes
        )
        self._validation = draw_steps(
            (seed, _VALIDATION_STREAM), plan.validation_scenes, plan.views_per_scene, processes
        )

    def train_step(self) -> None:
        """Take one optimiser step."""
        picked = self._batch_indices()
        rate = self._rate()
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16):
            tokens = encode_steps(self._visual, self._train.frames[picked])
        loss = self._loss(self._logits(tokens), _take(self._train, picked))
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._optimizer.step()
        self.step += 1
        self._loss_now = float(loss.detach())

    def advance(self, journal: Journal) -> None:
        """At every check, measure held-out accuracy and decide how to go on."""
        plan = self._plan
        finishing = self.decay_from is not None and self.step - self.decay_from >= plan.decay_steps
        if self.step % plan.check_every and not finishing:
            return
        accuracy = self.evaluate()
        journal.write(
            "vision", step=self.step, loss=round(self._loss_now, 4), cycle=self.cycle, **accuracy
        )
        worst = min(accuracy[name] for name in ("kind", "color", "side", "room", "nothing"))
        if self.decay_from is None:
            if worst >= plan.steady_accuracy or self.step >= plan.max_steady_steps:
                self.decay_from = self.step
        elif finishing:
            self.cycle += 1
            self.decay_from = self.step
            self.done = worst >= plan.final_accuracy or self.cycle >= plan.max_cycles

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return held-out accuracy per property over clear views, and of kinds over the others."""
        held_out = self._validation
        parts: list[list[Tensor]] = []
        for start in range(0, len(held_out.frames), 200):
            with torch.autocast("cpu", torch.bfloat16):
                tokens = encode_steps(self._visual, held_out.frames[start : start + 200])
            parts.append([logits.argmax(-1) for logits in self._logits(tokens)])
        kind, color, side, place = (torch.cat(column) for column in zip(*parts, strict=True))
        thing = (held_out.kinds >= 0) & (held_out.kinds < NO_KIND)
        clear = thing & held_out.clear[:, None]
        columns = (torch.arange(kind.shape[1]) % len(SIDES)).expand_as(kind)
        places = held_out.places.long()[:, None].expand_as(kind)

        def share(right: Tensor, where: Tensor) -> float:
            return round(right[where].float().mean().item(), 4)

        return {
            "kind": share(kind == held_out.kinds, clear),
            "color": share(color == held_out.colors, clear),
            "side": share(side == columns, clear),
            "room": share(place == places, clear),
            "nothing": share(kind == NO_KIND, held_out.kinds == NO_KIND),
            "kind_in_passing": share(kind == held_out.kinds, thing & ~held_out.clear[:, None]),
        }

    def _logits(self, tokens: Tensor) -> list[Tensor]:
        unit = F.normalize(tokens.float(), dim=-1)
        return [
            scale * F.linear(unit, F.normalize(self._words[ids], dim=-1))
            for scale, ids in zip(self._scales, self._groups, strict=True)
        ]

    def _loss(self, logits: list[Tensor], labels: LabelledSteps) -> Tensor:
        kind, color, side, place = (part.flatten(0, 1) for part in logits)
        kinds, colors = labels.kinds.flatten().long(), labels.colors.flatten().long()
        columns = (torch.arange(labels.kinds.shape[1]) % len(SIDES)).repeat(len(labels.kinds))
        places = labels.places.long().repeat_interleave(labels.kinds.shape[1])
        thing = (kinds >= 0) & (kinds < NO_KIND)
        empty = kinds == NO_KIND
        weight = torch.ones(NO_KIND + 1)
        weight[NO_KIND] = 0.15
        return (
            1.5 * F.cross_entropy(kind, kinds, weight=weight, ignore_index=IGNORE)
            + F.cross_entropy(color, colors, ignore_index=IGNORE)
            + 0.7 * F.cross_entropy(side[thing], columns[thing])
            + 0.3 * F.cross_entropy(side, columns)
            # Only object tokens carry a room, or a question for an object's room finds too many.
            + F.cross_entropy(place[thing], places[thing])
            - 0.1 * F.log_softmax(place[empty], -1).mean()
        )

    def _batch_indices(self) -> Tensor:
        n, size = len(self._train.frames), self._plan.batch_size
        per_epoch = n // size
        epoch, within = divmod(self.step, per_epoch)
        generator = torch.Generator().manual_seed(
            self._config.seed * 1_000_003 + _ORDER_STREAM * 1009 + epoch
        )
        return torch.randperm(n, generator=generator)[within * size : (within + 1) * size]

    def _rate(self) -> float:
        plan = self._plan
        rate = plan.learning_rate * min(1.0, (self.step + 1) / plan.warmup_steps)
        if self.decay_from is None:
            return rate
        progress = min(1.0, (self.step - self.decay_from) / plan.decay_steps)
        return rate * 0.5**self.cycle * (0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * progress)))


def draw_steps(
    seed: tuple[int, ...], n_scenes: int, views_per_scene: int, processes: int
) -> LabelledSteps:
    """Draw labelled steps: `views_per_scene` random views of each of `n_scenes` scenes."""
    jobs = [
        _Job((*seed, number), min(_CHUNK, n_scenes - number * _CHUNK), views_per_scene)
        for number in range(-(-n_scenes // _CHUNK))
    ]
    chunks = list(ordered_map(_draw_chunk, jobs, processes))
    columns = zip(*chunks, strict=True)
    return LabelledSteps(*(torch.from_numpy(np.concatenate(column)) for column in columns))


def _draw_chunk(job: _Job) -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(job.seed)
    frames, kinds, colors, places, clear = [], [], [], [], []
    for _ in range(job.scenes):
        n_objects = int(rng.choice(len(_OBJECT_SHARES), p=_OBJECT_SHARES))
        corridor = n_objects == 0 and rng.random() < 0.3
        room = CORRIDOR if corridor else random_room(rng)
        scene = random_scene(rng, room, n_objects, allowed=trained)
        photographer = Photographer(scene, rng)
        for _ in range(job.views):
            # Half of the views are the plain ones that a stream mostly consists of.
            view = (
                CLEAR[int(rng.integers(len(CLEAR)))]
                if rng.random() < 0.5
                else View(int(rng.integers(len(View))))
            )
            photograph = photographer.take(view)
            frames.append(photograph.frames)
            kinds.append(photograph.kinds)
            colors.append(photograph.colors)
            places.append(_PLACES.index(scene.room))
            clear.append(view in CLEAR)
    return (
        np.stack(frames),
        np.stack(kinds),
        np.stack(colors),
        np.array(places, np.int8),
        np.array(clear),
    )


def _take(steps: LabelledSteps, picked: Tensor) -> LabelledSteps:
    return LabelledSteps(*(column[picked] for column in steps))
