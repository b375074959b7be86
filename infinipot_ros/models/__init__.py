"""Model families: the only code that knows a model by its class."""

from infinipot_ros.models.loading import EMBEDDED, load_adapter

__all__ = ["EMBEDDED", "load_adapter"]
