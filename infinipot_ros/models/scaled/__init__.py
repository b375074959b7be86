"""Randomly initialised models of every family, scaled down from published configurations.

They answer nonsense, but with the real classes, ratios of heads, position sections, patch and merge
sizes: what the code promises about a family can be checked, measured and planned without a
download.
"""

from infinipot_ros.models.scaled.folders import write_scaled

__all__ = ["write_scaled"]
