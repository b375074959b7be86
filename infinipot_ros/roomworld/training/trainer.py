"""Run the stages in order, with checkpoints in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from infinipot_ros.roomworld.training.architecture import (
    build_model,
    build_tokenizer,
    initialise_language_model,
)
from infinipot_ros.roomworld.training.config import TrainConfig
from infinipot_ros.roomworld.training.export import export_model
from infinipot_ros.roomworld.training.journal import Journal, load_checkpoint, save_checkpoint
from infinipot_ros.roomworld.training.language import LanguageStage
from infinipot_ros.roomworld.training.pool import ScenePool, encode_pool, load_pool, save_pool
from infinipot_ros.roomworld.training.vision import VisionStage

_POOL_STREAMS = {"pool": 20, "validation_pool": 21}


class Trainer:
    """A training in one folder. Everything random follows from the seed and the step number.

    A resumed training therefore continues exactly as an uninterrupted one.
    """

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        """Build the model, and restore the folder's checkpoint when there is one.

        Raises ValueError when the checkpoint was written with another configuration.
        """
        folder.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(config.threads)
        self._config = config
        self._folder = folder
        self._checkpoint = folder / "checkpoint.pt"
        self._tokenizer = build_tokenizer()
        self.model = build_model(config.shape, self._tokenizer, config.seed)
        initialise_language_model(self.model, config.seed, config.language.tied_layers)
        word_ids = self._tokenizer.get_vocab()
        self.vision = VisionStage(self.model, word_ids, config)
        self.language = LanguageStage(self.model, word_ids, config)
        self._journal = Journal(folder)
        self._restore()

    @property
    def passed(self) -> bool:
        """Whether the finished model reached the final gate."""
        return self.language.passed

    def run(self, stop_after: int | None = None) -> bool:
        """Train until finished, or for `stop_after` optimiser steps; return whether finished."""
        self._journal.write("start", config=self._config.as_dict())
        left = stop_after
        for prepare, stage in (
            (self._prepare_vision, self.vision),
            (self._prepare_language, self.language),
        ):
            if stage.done or left == 0:
                continue
            prepare()
            while not stage.done and left != 0:
                stage.train_step()
                stage.advance(self._journal)
                left = None if left is None else left - 1
                if stage.step % self._config.checkpoint_every == 0:
                    self._save()
            self._save()
        if not self.language.done:
            return False
        export_model(self.model, self._tokenizer, self._folder / "model")
        self._journal.write("finished", passed=self.passed, accuracy=self.language.final_accuracy)
        return True

    def _prepare_vision(self) -> None:
        self.vision.prepare()

    def _prepare_language(self) -> None:
        # The pools hold tokens of this vision tower and these words: both stay as they are now.
        self.model.model.visual.requires_grad_(False)
        plan = self._config.language
        pool = self._pool("pool", plan.pool_scenes)
        held_out = self._pool("validation_pool", plan.validation_scenes)
        self.language.prepare(pool, held_out)

    def _pool(self, name: str, n_scenes: int) -> ScenePool:
        path = self._folder / f"{name}.pt"
        if not path.exists():
            seed = (self._config.seed, _POOL_STREAMS[name])
            pool = encode_pool(self.model.model.visual, seed, n_scenes, self._config.threads)
            save_pool(pool, path)
            self._journal.write("pool", name=name, scenes=len(pool.scenes))
        return load_pool(path)

    def _save(self) -> None:
        state: dict[str, Any] = {
            "config": self._config.as_dict(),
            "model": self.model.state_dict(),
            "vision": self.vision.state(),
            "language": self.language.state(),
        }
        save_checkpoint(self._checkpoint, state)

    def _restore(self) -> None:
        state = load_checkpoint(self._checkpoint)
        if state is None:
            return
        stored = {**state["config"], "threads": self._config.threads}  # threads decide speed only
        if stored != self._config.as_dict():
            raise ValueError(
                f"{self._checkpoint} was written with another configuration; "
                "use the same options, or another folder"
            )
        self.model.load_state_dict(state["model"])
        self.vision.restore(state["vision"])
        self.language.restore(state["language"])
