"""Encode many scenes once with the finished vision tower, to build streams of them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from infinipot_ros.roomworld.scenes import Scene, SceneObject, random_scene
from infinipot_ros.roomworld.training.forward import encode_steps
from infinipot_ros.roomworld.training.views import Photographer, View
from infinipot_ros.roomworld.training.workers import ordered_map
from infinipot_ros.roomworld.vocabulary import CORRIDOR

_CHUNK = 100
_SHARES = {1: 0.48, 2: 0.20, 3: 0.12, 0: 0.12, -1: 0.08}
"""Share of scenes with so many objects; -1 stands for corridors."""


class _Job(NamedTuple):
    seed: tuple[int, ...]
    scenes: int


class ScenePool:
    """Scenes with the vision tokens of all their views.

    tokens: float16 [scenes, views, 9, hidden]; kinds: int8 [scenes, views, 9] token labels.
    """

    def __init__(
        self, tokens: NDArray[np.float16], kinds: NDArray[np.int8], scenes: list[Scene]
    ) -> None:
        self.tokens = tokens
        self.kinds = kinds
        self.scenes = scenes
        by_size: defaultdict[int, list[int]] = defaultdict(list)
        for index, scene in enumerate(scenes):
            size = -1 if scene.room == CORRIDOR else len(scene.objects)
            by_size[size].append(index)
        self._by_size = dict(by_size)

    def draw(self, rng: np.random.Generator, size: int) -> int:
        """Draw the index of a scene with `size` objects; -1 draws a corridor."""
        members = self._by_size[size]
        return members[int(rng.integers(len(members)))]


def load_pool(path: Path) -> ScenePool:
    """Read a pool that `save_pool` wrote."""
    stored = torch.load(path, weights_only=True)
    scenes = [
        Scene(room, tuple(SceneObject(*thing) for thing in things), look)
        for room, things, look in stored["scenes"]
    ]
    return ScenePool(stored["tokens"].numpy(), stored["kinds"].numpy(), scenes)


def save_pool(pool: ScenePool, path: Path) -> None:
    """Write a pool to one file."""
    scenes = [
        (s.room, [(o.kind, o.color, o.side, o.size, o.x, o.y) for o in s.objects], s.look)
        for s in pool.scenes
    ]
    torch.save(
        {
            "tokens": torch.from_numpy(pool.tokens),
            "kinds": torch.from_numpy(pool.kinds),
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
    kinds: list[NDArray[np.int8]] = []
    scenes: list[Scene] = []
    for drawn, frames, labels in ordered_map(_draw_chunk, jobs, processes):
        views = torch.from_numpy(frames).flatten(0, 1)
        with torch.autocast("cpu", torch.bfloat16):
            encoded = torch.cat([encode_steps(visual, part) for part in torch.split(views, 240)])
        tokens.append(encoded.half().view(len(drawn), len(View), *encoded.shape[1:]).numpy())
        kinds.append(labels)
        scenes.extend(drawn)
    return ScenePool(np.concatenate(tokens), np.concatenate(kinds), scenes)


def _draw_chunk(job: _Job) -> tuple[list[Scene], NDArray[np.uint8], NDArray[np.int8]]:
    rng = np.random.default_rng(job.seed)
    sizes = rng.choice(list(_SHARES), size=job.scenes, p=list(_SHARES.values()))
    # The rarest sizes must exist in the smallest pool.
    sizes[: len(_SHARES)] = list(_SHARES)[: job.scenes]
    scenes, frames, kinds = [], [], []
    for size in sizes:
        scene = random_scene(rng, CORRIDOR if size < 0 else None, max(0, int(size)))
        photographer = Photographer(scene, rng)
        taken = [photographer.take(view) for view in View]
        scenes.append(scene)
        frames.append(np.stack([photograph.frames for photograph in taken]))
        kinds.append(np.stack([photograph.kinds for photograph in taken]))
    return scenes, np.stack(frames), np.stack(kinds)
