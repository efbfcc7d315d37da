"""The executors that an autoscaler asks Spark for, and gives back."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from binshift.autoscaling.policy import Action, Cluster, Decision
from binshift.jvm import call, task_slots

if TYPE_CHECKING:
    from binshift.controller import Controller

_log = logging.getLogger("binshift")


class OwnExecutors:
    """Sees to the executors of the application of a query; used by one thread.

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

    def require(self) -> None:
        """Refuses where others decide on the number of executors."""
        call(self._controller._handle.requireOwnExecutors)

    def cluster(self, now_s: float) -> Cluster:
        """What the query runs on."""
        placement = self._controller._placement()
        there = len(placement.executors)
        missing = self._asked is not None and self._asked[0] > there
        return Cluster(
            task_slots(),
            idle=placement.idle,
            to_move=len(placement.spread(place_on=placement.idle)),
            executors=there,
            is_refused=missing and self._asked is not None and now_s - self._asked[1] >= self._wait_s,
        )

    def is_awaited(self, decision: Decision) -> bool:
        """Whether what a decision asks for was asked for already."""
        asked = self._asked
        return decision.action is Action.REQUEST and asked is not None and asked[0] == decision.executors

    def hold(self, least: int, most: int, now_s: float) -> None:
        """Has the cluster manager give no more executors than there are, the first time."""
        if self._asked is None:
            there = len(self._controller._placement().executors)
            self.request(min(max(there, least), most), now_s)

    def request(self, total: int, now_s: float) -> None:
        """Asks for so many in all; they come later, or do not."""
        heard = call(self._controller._handle.requestExecutors, total)
        self._asked = (total, now_s)
        if not heard:
            _log.warning("query %s: Spark has not heard that %d executors are wanted", self._query_id, total)

    def release(self, stay: int) -> None:
        """Gives back executors without partitions, so that `stay` are left; or empties one first."""
        placement = self._controller._placement()
        partitions = Counter(e for executors in placement.partitions for e in executors)
        empty = [e for e in placement.executors if not partitions[e]][: len(placement.executors) - stay]
        if empty:
            left = len(placement.executors) - len(empty)
            _log.info("query %s: executors %s are given back", self._query_id, ", ".join(empty))
            call(self._controller._handle.giveBackExecutors, ",".join(empty), left)
            self._asked = (left, 0.0)
        else:
            # Of equals, the one that came last.
            self._controller.drain(min(reversed(placement.executors), key=lambda e: partitions[e]))

    @property
    def _query_id(self) -> str:
        return str(self._controller.query.id)
