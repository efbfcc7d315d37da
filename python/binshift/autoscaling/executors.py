"""The executors that an autoscaler asks Spark for, and gives back."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from binshift.autoscaling.decision import Action, Decision
from binshift.autoscaling.observed import Cluster
from binshift.planning.placement import Placement

if TYPE_CHECKING:
    from binshift.controller import Controller

__all__ = ["OwnExecutors"]

_log = logging.getLogger("binshift")


class OwnExecutors:
    """Manages the executors of a query's application. For one thread at a time.

    Parameters
    ----------
    controller : Controller
        The query's controller.
    wait_s : float
        How many seconds to wait for executors that were asked for.
    are_counted : bool
        Whether their number may be changed, so that it matters who else uses them.
    """

    def __init__(self, controller: Controller, wait_s: float, *, are_counted: bool = True) -> None:
        self._controller = controller
        self._wait_s = wait_s
        self._are_counted = are_counted
        #: The total that was asked for, and when.
        self._asked: tuple[int, float] | None = None
        #: The placement of partitions, as of the latest look.
        self._placement = Placement((), ())
        #: Executors that run partitions of other queries, as of the latest look.
        self._shared: frozenset[str] = frozenset()
        #: Executors that this object has drained, and that may get partitions again.
        self._drained: frozenset[str] = frozenset()

    def require(self) -> None:
        """Raises if binshift must not change the number of executors."""
        self._controller._link.require_own_executors()

    def cluster(self, now_s: float) -> Cluster:
        """The cluster as of now. The methods below rely on this look."""
        link = self._controller._link
        placement = self._controller._placement()
        there = len(placement.executors)
        shared = frozenset(link.executors_of_others() if self._are_counted else ()) & set(placement.executors)
        if shared - self._shared:
            names = ", ".join(sorted(shared))
            _log.info("query %s: executors %s run partitions of other queries, so they stay", link.id, names)
        self._shared = shared
        self._drained &= set(placement.leaving)
        # An executor that was emptied to be given back is as good as one that has just joined.
        leaving = tuple(e for e in placement.leaving if e not in self._drained)
        self._placement = placement = replace(placement, leaving=leaving)
        closed, empty = self._closed(), self._empty()
        drained = len(closed)
        slots = link.task_slots()
        return Cluster(
            slots * (there - drained) // there if slots is not None and there else slots,
            idle=placement.idle,
            to_move=len(placement.spread(place_on=placement.idle)),
            executors=there - drained,
            drained=drained,
            excluded=len(placement.excluded),
            shared=len(shared),
            empty=empty,
            emptied=len(closed.intersection(empty)),
            is_refused=self._asked is not None
            and self._asked[0] > placement.in_all
            and now_s - self._asked[1] >= self._wait_s,
        )

    def hold(self, least: int, most: int, now_s: float) -> None:
        """On the first call, tells the cluster manager how many executors the application should have at most.

        Executors that are still starting count, because they are among the configured ones.
        """
        if self._asked is None:
            placement = self._controller._placement()
            wanted = max(placement.in_all, least, placement.configured or 0)
            self._ask(min(wanted, most), now_s)

    def leave_to_others(self) -> None:
        """Lets autoscalers of other queries ask for executors; their number stays."""
        # Needed even after a refused request, because the driver counts them as ours by then.
        if self._are_counted:
            self._asked = None
            self._controller._link.leave_executors_to_others()

    def once(self, decision: Decision) -> Decision:
        """The same decision, or to hold if its request was made already or can't be made."""
        wanted = decision.executors
        if wanted is None:
            return decision
        if decision.action is Action.REQUEST:
            if self._asked is not None and self._asked[0] == self._total(wanted):
                return _held(decision, f"{wanted} executors were asked for, and are not there yet")
        elif not self._spare(wanted) and self._next_to_drain(wanted) is None:
            return _held(decision, "executors that were drained still run partitions")
        return decision

    def request(self, executors: int, now_s: float) -> None:
        """Asks for executors, besides those that somebody else has drained. They arrive later, or never."""
        self._ask(self._total(executors), now_s)

    def release(self, stay: int, now_s: float) -> None:
        """Gives back executors without partitions until `stay` are left. If there is none to give, empties one.

        Executors that other queries use are kept in any case.
        """
        if spare := self._spare(stay):
            left = self._placement.in_all - len(spare)
            # The total is lowered first, because otherwise the cluster manager would start replacements.
            self._ask(left, now_s)
            given = self._controller._link.give_back_executors(spare)
            if given:
                names = ", ".join(sorted(given))
                _log.info("query %s: executors %s are given back", self._controller._link.id, names)
            # Partitions have moved there since the look.
            if kept := len(spare) - len(given):
                self._ask(left + kept, now_s)
        elif (executor := self._next_to_drain(stay)) is not None:
            self._controller.drain(executor)
            self._drained |= {executor}

    def _ask(self, total: int, now_s: float) -> None:
        self._controller._link.request_executors(total)
        self._asked = (total, now_s)

    def _total(self, executors: int) -> int:
        """The total to ask Spark for, so that this many executors get partitions."""
        return executors + len(self._closed()) + len(self._placement.excluded)

    def _empty(self) -> tuple[str, ...]:
        """Executors without a partition of any query, drained ones first.

        Empty before any partition has run.
        """
        used, leaving = _partitions(self._placement), self._leaving()
        empty = [e for e in self._own() if not used[e]] if used else []
        return tuple(sorted(empty, key=lambda e: e not in leaving))

    def _spare(self, stay: int) -> tuple[str, ...]:
        """Executors that may go at once, if at least `stay` are left, besides those of other queries."""
        return self._empty()[: max(0, len(self._own()) - stay)]

    def _next_to_drain(self, stay: int) -> str | None:
        """The executor with the fewest partitions; among equals, the one that joined last."""
        used, leaving = _partitions(self._placement), self._leaving()
        possible = [e for e in self._own() if e not in leaving]
        return min(reversed(possible), key=lambda e: used[e]) if len(possible) > stay else None

    def _closed(self) -> frozenset[str]:
        """Existing executors that somebody else has drained."""
        return frozenset(self._placement.leaving).intersection(self._placement.executors)

    def _leaving(self) -> frozenset[str]:
        """Executors that were drained by anybody."""
        return self._drained.union(self._placement.leaving)

    def _own(self) -> tuple[str, ...]:
        """Executors without partitions of other queries."""
        return tuple(e for e in self._placement.executors if e not in self._shared)


def _partitions(placement: Placement) -> Counter[str]:
    return Counter(e for executors in placement.partitions for e in executors)


def _held(decision: Decision, reason: str) -> Decision:
    return replace(
        decision, action=Action.HOLD, desired=decision.current, reason=reason, place_on=(), executors=None
    )
