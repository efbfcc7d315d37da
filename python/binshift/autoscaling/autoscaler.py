"""A thread that watches a query, and reports or carries out the decisions of `decide`."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from binshift.arguments import checked
from binshift.autoscaling.decision import Action, Change, Decision
from binshift.autoscaling.executors import OwnExecutors
from binshift.autoscaling.observed import Observation
from binshift.autoscaling.policy import decide
from binshift.autoscaling.settings import ScalingSettings
from binshift.epoch_progress import distinct
from binshift.errors import BinshiftError, ConfigurationError, impossible
from binshift.planning.strategies import Strategy, strategy_of

if TYPE_CHECKING:
    from binshift.controller import Controller

__all__ = ["Autoscaler", "Mode"]

_log = logging.getLogger("binshift")

Mode = Literal["advise", "act"]
_MODES = ("advise", "act")
_REMEMBERED = 256


@checked(ConfigurationError, but=("controller", "strategy", "mode"))
class Autoscaler:
    """Keeps the number of partitions right for the input, or says what it would do.

    Every `interval_s` seconds it looks at the query's latest epochs and decides (see
    `binshift.autoscaling.decide`). Decisions are logged with their reasons under "binshift": as INFO if they
    change something or differ from the one before, otherwise as DEBUG. The latest ones are kept in `decisions`.

    Nothing is decided while a migration is under way, whoever started it. The thread ends when the query ends,
    or when you call `stop`. If a look fails, that is logged as a warning, and `failure` says why. The next look
    comes at its usual time.

    Parameters
    ----------
    controller : Controller
        The query's controller.
    min_partitions, max_partitions : int
        Bounds of every decision. There are never more partitions than bins.
    target_utilization : float
        Share of the time that the query should be busy, above 0 and at most 1.
    interval_s : float
        Seconds between two decisions.
    cooldown_s : float
        Seconds after a change in which nothing else changes.
    mode : {"advise", "act"}
        Whether decisions are only reported, or carried out.
    window, dead_band
        See `ScalingSettings`.
    epoch_s : float, optional
        Seconds that an epoch may take. By default the interval of the query's trigger. A query without an
        interval starts its next epoch at once, so it is busy whenever it has input, and can't be judged without
        this number.
    strategy : Strategy or str, optional
        How to cut the moves of prepared plans into steps. A query that is behind its input gets its partitions
        on demand instead, if its operators look their state up by key; see `OnDemand`.
    max_executors : int, optional
        Allows the autoscaler to ask Spark for executors, up to this number in all, if partitions lack cores.
        Executors that are no longer needed are emptied and given back, unless other queries use them. Without
        this number, the autoscaler doesn't change the number of executors.
    min_executors : int
        Executors that are not given back.
    executor_wait_s : float
        How many seconds to wait for executors that were asked for.

    Raises
    ------
    ConfigurationError
        If a number is impossible, or the query's trigger has no interval and `epoch_s` is not given. Also if
        the query keeps the reports of fewer epochs than `window`, or is in real-time mode. With
        `max_executors`, also in local mode, with Spark Connect, under dynamic allocation, and if another query
        of the application asks for executors.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        min_partitions: int,
        max_partitions: int,
        target_utilization: float = 0.7,
        interval_s: float = 30.0,
        cooldown_s: float = 120.0,
        mode: Mode = "advise",
        window: int = 6,
        dead_band: float = 0.15,
        epoch_s: float | None = None,
        strategy: Strategy | str | None = None,
        max_executors: int | None = None,
        min_executors: int = 1,
        executor_wait_s: float = 120.0,
    ) -> None:
        if not hasattr(controller, "_link"):
            wanted = "the controller that binshift.attach(query) returns"
            raise impossible(ConfigurationError, "controller", controller, wanted)
        if mode not in _MODES:
            raise impossible(ConfigurationError, "mode", mode, "'advise' or 'act'")
        if not interval_s > 0:
            raise impossible(ConfigurationError, "interval_s", interval_s, "seconds above 0")
        if controller._link.is_real_time():
            raise ConfigurationError(
                f"query {controller._link.id} is in real-time mode, in which an epoch takes as long as its "
                "trigger says, whatever there is to do, so it does not show load; call rescale() yourself",
                condition="REAL_TIME_UNSUPPORTED",
                what="an autoscaler",
            )
        if epoch_s is None:
            epoch_s = controller._link.trigger_interval_ms() / 1000
            if not epoch_s:
                raise ConfigurationError(
                    f"query {controller._link.id} has a trigger without an interval, so it is busy whenever it "
                    "has input; give epoch_s=, what an epoch may take, or start the query with "
                    "trigger(processingTime=...)",
                    condition="TRIGGER_WITHOUT_INTERVAL",
                )
        self._controller = controller
        self._interval = interval_s
        self._mode: Mode = mode
        self._strategy = None if strategy is None else strategy_of(strategy)
        self._settings = ScalingSettings(
            min_partitions=min_partitions,
            max_partitions=max_partitions,
            target_utilization=target_utilization,
            epoch_s=epoch_s,
            cooldown_s=cooldown_s,
            window=window,
            dead_band=dead_band,
            min_executors=min_executors,
            max_executors=max_executors,
        )
        kept = controller._link.reports_kept()
        if window > kept:
            wanted = (
                f"at most {kept}, which the query remembers by spark.sql.streaming.numRecentProgressUpdates"
            )
            raise impossible(ConfigurationError, "window", window, wanted)
        if not executor_wait_s >= 0:
            raise impossible(
                ConfigurationError, "executor_wait_s", executor_wait_s, "a number of seconds, at least 0"
            )
        self._executors = OwnExecutors(controller, executor_wait_s, are_counted=max_executors is not None)
        if max_executors is not None:
            self._executors.require()
        self._decisions: deque[Decision] = deque(maxlen=_REMEMBERED)
        self._last: Change | None = None
        #: Epochs up to this one belonged to a migration, or were before it.
        self._disturbed_until = -1
        self._failure: Exception | None = None
        #: How many looks of the thread have failed in a row.
        self._failures = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Autoscaler of {self._controller!r}, {self._mode}>"

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The latest decisions, oldest first; 256 at most."""
        return tuple(self._decisions)

    @property
    def failure(self) -> Exception | None:
        """Why the thread's latest look failed; None if it didn't, or if the query has ended."""
        return self._failure

    @property
    def is_running(self) -> bool:
        """True if the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> Autoscaler:
        """Starts the thread; without effect while it runs."""
        if not self.is_running:
            self._stopping.clear()
            self._failure, self._failures = None, 0
            self._thread = threading.Thread(target=self._run, name="binshift-autoscaler", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the thread, and waits for it. A migration that it started continues.

        The number of executors stays as it is, and autoscalers of other queries may change it.
        """
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._executors.leave_to_others()
        except Exception as error:
            # If the driver is gone, so are its executors.
            _log.warning(
                "autoscaler of query %s: executors are not left to others: %s", self._controller._link.id, error
            )

    def __enter__(self) -> Autoscaler:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def step(self) -> Decision:
        """Decides once, and acts if that is the mode. The thread does this every `interval_s` seconds.

        Raises
        ------
        MigrationError
            If the query has ended, or doesn't accept the migration.
        ConfigurationError
            If there are fewer bins than `min_partitions`.
        """
        found = distinct(self._controller._link.recent_progress())
        # Asked after the progress was read, so that no epoch in between counts as idle time. Uses the driver's
        # clock, because the client's may differ.
        planned, now = self._controller._link.planned_epoch()
        newest = found[-1].epoch if found else -1
        if self._controller.migration() is not None:
            self._disturbed_until = newest
            if self._last is not None:
                self._last = replace(self._last, at_s=now)
            partitions = found[-1].partitions if found else 0
            reason = "a migration is under way"
            return self._keep(
                Decision(now, action=Action.HOLD, current=partitions, desired=partitions, reason=reason)
            )
        observations = [
            Observation(
                e.started_at.timestamp(), busy_s=e.duration_s, rows=e.input_rows, partitions=e.partitions
            )
            for e in found
            if e.epoch > self._disturbed_until and not e.bins_adopted
        ]
        settings = self._settings
        if observations:
            table = self._controller.routing()
            if self._last is not None and table.partitions != self._last.target:
                # It was cancelled or rolled back, so there is nothing to revert.
                self._last = replace(self._last, input_rate=None)
            settings = replace(settings, max_partitions=min(settings.max_partitions, table.bins))
        if settings.max_executors is not None and self._mode == "act":
            self._executors.hold(settings.min_executors, settings.max_executors, now)
        cluster = self._executors.cluster(now)
        decision = decide(
            observations,
            settings=settings,
            now_s=now,
            cluster=cluster,
            last=self._last,
            is_running=planned > newest,
        )
        if self._mode == "act":
            decision = self._executors.once(decision)
        self._keep(decision)
        if decision.action is not Action.HOLD and self._mode == "act":
            self._act(decision, newest)
        return decision

    def _act(self, decision: Decision, newest: int) -> None:
        if decision.action is Action.REQUEST and decision.executors is not None:
            self._executors.request(decision.executors, decision.at_s)
        elif decision.action is Action.RELEASE and decision.executors is not None:
            self._executors.release(decision.executors, decision.at_s)
        else:
            change = Change.of(decision, last=self._last)
            if decision.action is Action.REBALANCE:
                self._controller.rebalance("bins", max_moves=0, place_on=decision.place_on)
                # The last change of the number still must not be reverted.
                if self._last is not None:
                    change = replace(self._last, at_s=decision.at_s)
            else:
                # A query that is behind has no time to wait for copies, and the owners have none to make them.
                is_behind = decision.desired > decision.current and not decision.keeps_up
                is_urgent = is_behind and not self._controller._in_force().whole_bins
                self._controller.rescale(
                    decision.desired,
                    strategy=None if is_urgent else self._strategy,
                    place_on=decision.place_on,
                    prepare=not is_urgent,
                )
            self._last = change
            self._disturbed_until = newest

    def _keep(self, decision: Decision) -> Decision:
        previous = self._decisions[-1] if self._decisions else None
        wanted = decision.action, decision.desired, decision.executors
        is_news = previous is None or (previous.action, previous.desired, previous.executors) != wanted
        level = logging.INFO if is_news or decision.action is not Action.HOLD else logging.DEBUG
        said = "would " * (self._mode == "advise" and decision.action is not Action.HOLD)
        _log.log(level, "autoscaler of query %s: %s%s", self._controller._link.id, said, decision)
        self._decisions.append(decision)
        return decision

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            try:
                if not self._controller._link.is_active():
                    self._failure = None
                    return
                self.step()
                self._failure, self._failures = None, 0
            except Exception as error:
                # Another migration came first, or a service failed for a while. The next look will show.
                self._note(error)

    def _note(self, error: Exception) -> None:
        """Reports that a look has failed; less and less often if many fail in a row."""
        self._failure = error
        self._failures += 1
        if self._failures == 1:
            now, partitions = time.time(), self._decisions[-1].current if self._decisions else 0
            reason = f"this look has failed: {_brief(error)}"
            self._keep(Decision(now, action=Action.HOLD, current=partitions, desired=partitions, reason=reason))
        if self._failures & (self._failures - 1) == 0:
            _log.warning(
                "autoscaler of query %s: %d looks in a row have failed, and it continues: %s",
                self._controller._link.id,
                self._failures,
                error,
                exc_info=None if isinstance(error, BinshiftError) else error,
            )


def _brief(error: Exception) -> str:
    # In an error of py4j, the first line says which call failed, and the second one why.
    return " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:2]])
