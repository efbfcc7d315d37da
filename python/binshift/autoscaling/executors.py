"""The executors that an autoscaler asks Spark for, and gives back."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from binshift.autoscaling.decision import Action, Decision
from binshift.autoscaling.observed import Cluster

if TYPE_CHECKING:
    from binshift.controller import Controller
    from binshift.planning.placement import Placement

__all__ = ["OwnExecutors"]

_log = logging.getLogger("binshift")


class OwnExecutors:
    """Sees to the executors of the application of a query; one thread at a time calls it.

    Parameters
    ----------
    controller : Controller
        Of the query.
    wait_s : float
        Seconds after which executors that were asked for and have not come are no longer waited for.
    """

    def __init__(self, controller: Controller, wait_s: float) -> None:
        self._controller = controller
        self._wait_s = wait_s
        #: How many were asked for in all, and when.
        self._asked: tuple[int, float] | None = None
        #: Executors that run something of others.
        self._kept: frozenset[str] = frozenset()

    def require(self) -> None:
        """Refuses where the number of executors is not to be changed by us."""
        self._controller._link.require_own_executors()

    def cluster(self, now_s: float) -> Cluster:
        """What the query runs on."""
        placement = self._controller._placement()
        there = len(placement.executors)
        is_late = self._asked is not None and self._asked[0] > there and now_s - self._asked[1] >= self._wait_s
        return Cluster(
            self._controller._link.task_slots(),
            idle=placement.idle,
            to_move=len(placement.spread(place_on=placement.idle)),
            executors=there,
            is_refused=is_late,
        )

    def hold(self, least: int, most: int, now_s: float) -> None:
        """The first time, has the cluster manager give no more executors than there are, or than are wanted."""
        if self._asked is None:
            there = len(self._controller._placement().executors)
            self.request(min(max(there, least), most), now_s)

    def once(self, decision: Decision) -> Decision:
        """The same, or to hold where what it asks for was done already or cannot be done."""
        if decision.action is Action.REQUEST and self._asked is not None:
            if self._asked[0] == decision.executors:
                return _held(decision, f"{decision.executors} executors were asked for, and are not there yet")
        elif decision.action is Action.RELEASE and decision.executors is not None:
            placement = self._controller._placement()
            if not self._empty(placement, decision.executors) and self._next_to_drain(placement) is None:
                kept = ", ".join(sorted(self._kept))
                return _held(decision, f"executors {kept} run partitions of other queries, so they stay")
        return decision

    def request(self, total: int, now_s: float) -> None:
        """Asks for so many in all; they come later, or do not."""
        self._controller._link.request_executors(total)
        self._asked = (total, now_s)

    def release(self, stay: int, now_s: float) -> None:
        """Gives back executors without partitions until `stay` are left; if there is none, empties one."""
        placement = self._controller._placement()
        if empty := self._empty(placement, stay):
            left = len(placement.executors) - len(empty)
            # First, because otherwise the cluster manager starts others in the place of those that go.
            self.request(left, now_s)
            given = set(self._controller._link.give_back_executors(empty))
            _log.info(
                "query %s: executors %s are given back", self._controller._link.id, ", ".join(sorted(given))
            )
            if kept := set(empty) - given:
                self._kept |= kept
                self.request(left + len(kept), now_s)
        elif (executor := self._next_to_drain(placement)) is not None:
            self._controller.drain(executor)

    def _empty(self, placement: Placement, stay: int) -> list[str]:
        """Executors that may go at once, so that `stay` are left at least."""
        partitions = _partitions(placement)
        empty = [e for e in placement.executors if not partitions[e] and e not in self._kept]
        return empty[: max(0, len(placement.executors) - stay)]

    def _next_to_drain(self, placement: Placement) -> str | None:
        """The executor with fewest partitions; of equals the one that came last."""
        partitions = _partitions(placement)
        possible = [e for e in placement.executors if e not in self._kept]
        return min(reversed(possible), key=lambda e: partitions[e]) if len(possible) > 1 else None


def _partitions(placement: Placement) -> Counter[str]:
    return Counter(e for executors in placement.partitions for e in executors)


def _held(decision: Decision, reason: str) -> Decision:
    return replace(
        decision, action=Action.HOLD, desired=decision.current, reason=reason, place_on=(), executors=None
    )
