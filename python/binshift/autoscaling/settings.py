"""The settings of the scaling policy."""

from __future__ import annotations

from dataclasses import dataclass

from binshift.arguments import checked
from binshift.display import brief
from binshift.errors import ConfigurationError, impossible
from binshift.numbers import is_whole

__all__ = ["ScalingSettings"]


@checked(ConfigurationError)
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScalingSettings:
    """The settings of the scaling policy.

    Parameters
    ----------
    min_partitions, max_partitions : int
        Bounds of every decision.
    target_utilization : float
        Share of the time that the query should be busy, above 0 and at most 1.
    epoch_s : float
        Seconds that an epoch may take: the interval of the query's trigger.
    cooldown_s : float
        Seconds after a change in which nothing else changes.
    window : int
        Epochs that a decision looks at. Both its older and its newer half have to ask for a change.
    dead_band : float
        A utilization within this share of the target changes nothing. A change isn't reverted while the input
        is within this share of the input at that change.
    min_executors : int
        Executors that are not given back.
    max_executors : int or None
        The largest total number of executors to ask for; None doesn't change their number.

    Raises
    ------
    ConfigurationError
        If a number is impossible.
    """

    min_partitions: int
    max_partitions: int
    target_utilization: float = 0.7
    epoch_s: float = 10.0
    cooldown_s: float = 120.0
    window: int = 6
    dead_band: float = 0.15
    min_executors: int = 1
    max_executors: int | None = None

    def __post_init__(self) -> None:
        most = self.min_executors if self.max_executors is None else self.max_executors
        checks = (
            ("min_partitions", self.min_partitions, is_whole(self.min_partitions, 1), "an int of at least 1"),
            (
                "max_partitions",
                self.max_partitions,
                is_whole(self.max_partitions, self.min_partitions),
                f"an int of at least {self.min_partitions}",
            ),
            (
                "target_utilization",
                self.target_utilization,
                0 < self.target_utilization <= 1,
                "a share above 0, at most 1",
            ),
            ("epoch_s", self.epoch_s, self.epoch_s > 0, "seconds above 0"),
            ("cooldown_s", self.cooldown_s, self.cooldown_s >= 0, "a number of seconds, at least 0"),
            ("window", self.window, is_whole(self.window, 2), "an int of at least 2"),
            ("dead_band", self.dead_band, 0 <= self.dead_band < 1, "a share of at least 0 and below 1"),
            ("min_executors", self.min_executors, is_whole(self.min_executors, 1), "an int of at least 1"),
            (
                "max_executors",
                most,
                is_whole(most, self.min_executors),
                f"an int of at least {self.min_executors}",
            ),
        )
        for name, value, is_possible, wanted in checks:
            if not is_possible:
                raise impossible(ConfigurationError, name, value, wanted)

    def __repr__(self) -> str:
        return brief(self)
