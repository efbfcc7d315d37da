"""A decision of the policy, and the change that it led to."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from binshift.display import brief

__all__ = ["Action", "Change", "Decision"]


class Action(StrEnum):
    """The kinds of decisions."""

    HOLD = "hold"
    RESCALE = "rescale"
    #: Whole partitions should move, and their number should stay the same.
    REBALANCE = "rebalance"
    #: Ask Spark for executors. Once they have joined, the query will be rescaled.
    REQUEST = "request"
    #: Executors should be emptied and given back.
    RELEASE = "release"


@dataclass(frozen=True, slots=True, repr=False)
class Decision:
    """A decision, with its reason.

    Parameters
    ----------
    at_s : float
        When the decision was made.
    action : Action
        What to do.
    current, desired : int
        The number of partitions now, and the number that is wanted.
    reason : str
        The reason, for people.
    input_rate, true_rate : float or None
        Rows a second that came in, and that the query could process if it were never idle. None if there were
        too few epochs to tell.
    utilization : float or None
        Share of the time that the query was busy.
    place_on : tuple of str
        Executors on which new partitions should be placed.
    executors : int or None
        The number of executors that is wanted, if some should be asked for or given back.
    keeps_up : bool
        Whether all considered epochs were done in time. If not, more rows may come in than are read.
    """

    at_s: float
    _: KW_ONLY
    action: Action
    current: int
    desired: int
    reason: str
    input_rate: float | None = None
    true_rate: float | None = None
    utilization: float | None = None
    place_on: tuple[str, ...] = ()
    executors: int | None = None
    keeps_up: bool = False

    def __str__(self) -> str:
        if self.action is Action.HOLD:
            return f"hold {self.current} partitions: {self.reason}"
        if self.action is Action.REBALANCE:
            return f"rebalance {self.current} partitions: {self.reason}"
        if self.action is Action.REQUEST:
            return f"ask for {self.executors} executors, for {self.desired} partitions: {self.reason}"
        if self.action is Action.RELEASE:
            return f"give executors back until {self.executors} are left: {self.reason}"
        return f"rescale from {self.current} to {self.desired} partitions: {self.reason}"

    def __repr__(self) -> str:
        return brief(self, str(self))


@dataclass(frozen=True, slots=True, repr=False)
class Change:
    """The latest change that a decision led to.

    Parameters
    ----------
    at_s : float
        When the change was over.
    source, target : int
        The number of partitions before and after.
    input_rate : float or None
        Rows a second that came in then, as far as the query could read them. None if it couldn't keep up,
        because then the rate isn't known. A correction has a rate all the same.
    is_correction : bool
        Whether it reverted a change that had left too few partitions to keep up, or continued to do so.
    """

    at_s: float
    _: KW_ONLY
    source: int
    target: int
    input_rate: float | None
    is_correction: bool = False

    @classmethod
    def of(cls, decision: Decision, *, last: Change | None = None) -> Change:
        """The change that a decision leads to, after the change `last`."""
        more = decision.desired > decision.current
        # The rate is a lower bound of the input. Without it, fewer partitions would be tried again and again.
        is_correction = more and not decision.keeps_up and last is not None and last.has_left_too_few
        # If the number stays the same, no later change can revert it.
        is_known = is_correction or (decision.keeps_up and decision.desired != decision.current)
        return cls(
            decision.at_s,
            source=decision.current,
            target=decision.desired,
            input_rate=decision.input_rate if is_known else None,
            is_correction=is_correction,
        )

    @property
    def has_left_too_few(self) -> bool:
        """True if it is the cause, if there are too few partitions now."""
        return self.is_correction or (self.target < self.source and self.input_rate is not None)

    def __repr__(self) -> str:
        return brief(self)
