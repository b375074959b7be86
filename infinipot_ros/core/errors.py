"""Errors that the package raises for its callers' mistakes and the world's faults."""

from __future__ import annotations


class InfinipotError(Exception):
    """Root of every error that this package raises on purpose."""


class ConfigError(InfinipotError, ValueError):
    """A configuration that cannot work; the message names the field, its value and the remedy."""


class ModelError(InfinipotError, RuntimeError):
    """A model that is missing, unsupported or does not fit the machine."""


class QuestionError(InfinipotError, ValueError):
    """A question that cannot be asked: empty, too long, or about an unknown camera."""


class QueueFullError(InfinipotError, RuntimeError):
    """One question too many is waiting; ask again later."""


class StoppedError(InfinipotError, RuntimeError):
    """The worker stopped before it could carry out what was asked of it."""


class BusyError(InfinipotError, RuntimeError):
    """The model was busy for too long; what was asked of it will be carried out later."""


class FrameError(InfinipotError, ValueError):
    """An image that cannot be used; the message names the field and the value that clash."""
