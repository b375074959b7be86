"""Encode many scenes once with the finished vision tower, to build streams of them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from infinipot_ros.roomworld.knowledge import Identity
from infinipot_ros.roomworld.scenes import (
    Scene,
    SceneObject,
    random_room,
    random_scene,
    trained,
)
from infinipot_ros.roomworld.training.forward import encode_steps
from infinipot_ros.roomworld.training.views import Photographer, View
from infinipot_ros.roomworld.training.workers import ordered_map
from infinipot_ros.roomworld.vocabulary import CORRIDOR

_CHUNK = 100
_SHARES = {1: 0.5, 2: 0.16, 3: 0.08, 4: 0.04, 5: 0.03, 0: 0.11, -1: 0.08}
"""Share of scenes with so many objects; -1 stands for corridors."""


class _Job(NamedTuple):
    seed: tuple[int, ...]
    scenes: int


class ScenePool:
    """Scenes with the vision tokens of all their views.

    tokens: float16 [scenes, views, 9, hidden]; labels: int8 [2, scenes, views, 9], the kind and the
    colour at each token, see `Photograph`.
    """

    def __init__(
        self, tokens: NDArray[np.float16], labels: NDArray[np.int8], scenes: list[Scene]
    ) -> None:
        self.tokens = tokens
        self.labels = labels
        self.scenes = scenes
        by_size: defaultdict[int, list[int]] = defaultdict(list)
        alone: defaultdict[Identity, list[int]] = defaultdict(list)
        for index, scene in enumerate(scenes):
            size = -1 if scene.room == CORRIDOR else len(scene.objects)
            by_size[size].append(index)
            if size == 1:
                alone[scene.objects[0].identity].append(index)
        self._by_size = dict(by_size)
        self._alone = dict(alone)

    def draw(self, rng: np.random.Generator, size: int) -> int:
        """Draw the index of a scene with `size` objects; -1 draws a corridor."""
        members = self._by_size[size]
        return members[int(rng.integers(len(members)))]

    def draw_alone(self, rng: np.random.Generator, identity: Identity, room: str) -> int | None:
        """Draw a scene that shows this object alone in another room than `room`; None: no such."""
        members = [i for i in self._alone.get(identity, ()) if self.scenes[i].room != room]
        return members[int(rng.integers(len(members)))] if members else None


def load_pool(path: Path) -> ScenePool:
    """Read a pool that `save_pool` wrote."""
    stored = torch.load(path, weights_only=True)
    scenes = [
        Scene(room, tuple(SceneObject(*thing) for thing in things), look)
        for room, things, look in stored["scenes"]
    ]
    return ScenePool(stored["tokens"].numpy(), stored["labels"].numpy(), scenes)


def save_pool(pool: ScenePool, path: Path) -> None:
    """Write a pool to one file."""
    scenes = [
        (s.room, [(o.kind, o.color, o.side, o.size, o.x, o.y, o.cover) for o in s.objects], s.look)
        for s in pool.scenes
    ]
    torch.save(
        {
            "tokens": torch.from_numpy(pool.tokens),
            "labels": torch.from_numpy(pool.labels),
            "scenes": scenes,
        },
        path,
    )


@torch.no_grad()
def encode_pool(visual: Any, seed: tuple[int, ...], n_scenes: int, processes: int) -> ScenePool:
    """Draw `n_scenes` scenes, photograph every view of each and encode them."""
    jobs = [
        _Job((*seed, number), min(_CHUNK, n_scenes - number * _CHUNK))
        for number in range(-(-n_scenes // _CHUNK))
    ]
    tokens: list[NDArray[np.float16]] = []
    labels: list[NDArray[np.int8]] = []
    scenes: list[Scene] = []
    for drawn, frames, marks in ordered_map(_draw_chunk, jobs, processes):
        views = torch.from_numpy(frames).flatten(0, 1)
        with torch.autocast("cpu", torch.bfloat16):
            encoded = torch.cat([encode_steps(visual, part) for part in torch.split(views, 240)])
        tokens.append(encoded.half().view(len(drawn), len(View), *encoded.shape[1:]).numpy())
        labels.append(marks)
        scenes.extend(drawn)
    return ScenePool(np.concatenate(tokens), np.concatenate(labels, 1), scenes)


def _draw_chunk(job: _Job) -> tuple[list[Scene], NDArray[np.uint8], NDArray[np.int8]]:
    rng = np.random.default_rng(job.seed)
    sizes = rng.choice(list(_SHARES), size=job.scenes, p=list(_SHARES.values()))
    # The rarest sizes must exist in the smallest pool.
    sizes[: len(_SHARES)] = list(_SHARES)[: job.scenes]
    scenes, frames, labels = [], [], []
    for size in sizes:
        room = CORRIDOR if size < 0 else random_room(rng)
        scene = random_scene(rng, room, max(0, int(size)), allowed=trained)
        photographer = Photographer(scene, rng)
        taken = [photographer.take(view) for view in View]
        scenes.append(scene)
        frames.append(np.stack([photograph.frames for photograph in taken]))
        labels.append(np.stack([(photo.kinds, photo.colors) for photo in taken], 1))
    return scenes, np.stack(frames), np.stack(labels, 1)
