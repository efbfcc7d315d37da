"""Decides when a query should be rescaled, and to how many partitions.

`decide` is the policy, a pure function of what was observed; `Autoscaler` observes a query and acts.
"""

from binshift.autoscaling.autoscaler import Autoscaler
from binshift.autoscaling.decision import Action, Change, Decision
from binshift.autoscaling.observed import Cluster, Observation
from binshift.autoscaling.policy import decide
from binshift.autoscaling.settings import ScalingSettings

__all__ = ["Action", "Autoscaler", "Change", "Cluster", "Decision", "Observation", "ScalingSettings", "decide"]
