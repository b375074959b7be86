"""Retention policies for a bounded video memory: which stored tokens survive a compression."""

from .base import CompressionPolicy, PolicyError, VideoTokens
from .registry import POLICIES, make_policy, policy_parameters

__all__ = [
    "POLICIES",
    "CompressionPolicy",
    "PolicyError",
    "VideoTokens",
    "make_policy",
    "policy_parameters",
]
