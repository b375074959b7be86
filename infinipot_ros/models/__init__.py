"""Model families: the only code that knows a model by its class."""

from infinipot_ros.models.loading import load_adapter

__all__ = ["load_adapter"]
