"""The old home of the strategies, which are in `binshift` itself now. Whoever imports it is warned."""

from binshift.deprecations import warn_of
from binshift.planning.strategies import AllAtOnce, Batched, Fluid, OnDemand, Optimized, Strategy

__all__ = ["AllAtOnce", "Batched", "Fluid", "OnDemand", "Optimized", "Strategy"]

warn_of("binshift.strategies", "binshift.Batched and so on")
