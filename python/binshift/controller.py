"""Attaching to a running query, and rescaling it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from binshift.arguments import checked, is_of_pyspark
from binshift.connect import ConnectLink
from binshift.control.savepoint_file import Savepoint, savepoint_of
from binshift.deprecations import renamed_arguments
from binshift.epoch_progress import distinct
from binshift.errors import ConfigurationError, MigrationError, MigrationTimeout, PlanError, impossible
from binshift.jvm import JvmLink
from binshift.link import QueryLink
from binshift.migration import Migration, forecast_message
from binshift.observation import ObservedQuery
from binshift.planning.bounded import Bounded
from binshift.planning.limits import Deadline, Guard, OnTimeout
from binshift.planning.load import By
from binshift.planning.options import MigrationOptions
from binshift.planning.placement import executor_ids
from binshift.planning.plan import MigrationPlan
from binshift.planning.strategies import Strategy, default_strategy, strategy_at_once, strategy_of
from binshift.planning.targets import LoadTarget, Target, balanced, table_of
from binshift.report import adopt_rate
from binshift.session import any_session, is_connect

__all__ = ["Controller", "attach"]

_log = logging.getLogger("binshift")


@checked(ConfigurationError, but=("query",))
def attach(
    query: StreamingQuery | str | UUID, *, spark: SparkSession | None = None, timeout: float | None = None
) -> Controller:
    """The controller of a running query.

    A query that was just started can't be rescaled before its first epoch. Give a `timeout` to wait for that.

    Parameters
    ----------
    query : StreamingQuery or str or UUID
        The query, or its name or id.
    spark : SparkSession, optional
        Session in which to look for a name or id. The default is the active session of this thread, or else the
        one that `getOrCreate` returns. A session of Spark Connect finds the queries of all sessions of its
        server.
    timeout : float, optional
        Seconds to wait until the query has committed an epoch in this run. After that, the controller knows
        everything that you can ask it. By default it doesn't wait.

    Raises
    ------
    ConfigurationError
        If there is no such query, or it doesn't use binshift's provider. With Spark Connect, also if the server
        has no binshift of this version. With `timeout`, also if the query has no stateful operator.
    MigrationError
        If the query has ended, or ends during the wait. The message says why; if Spark raised an error, that is
        the cause.
    MigrationTimeout
        If the query has committed no epoch in time.
    UnsupportedVersionError
        If the version of Spark isn't 4.1, 4.2 or 4.3.
    """
    if not isinstance(query, str | UUID) and not is_of_pyspark(query, "StreamingQuery"):
        wanted = "the StreamingQuery that writeStream.start() returns, or its name or id"
        raise impossible(ConfigurationError, "query", query, wanted)
    try:
        controller = Controller(_link(query, spark))
        if timeout is not None:
            _await_epoch(controller, timeout)
    except MigrationError as error:
        if error.condition == "QUERY_ENDED" and not isinstance(query, str | UUID):
            raise error from query.exception()
        raise
    return controller


def _link(query: StreamingQuery | str | UUID, spark: SparkSession | None) -> QueryLink:
    if isinstance(query, str | UUID):
        session = _session(str(query), spark)
        if is_connect(session):
            return ConnectLink(session, str(query))
        query = _find(str(query), session)
    elif is_connect(query):
        own: SparkSession = query._session  # type: ignore[attr-defined]
        return ConnectLink(own if spark is None else spark, query)
    return JvmLink(query)


def _await_epoch(controller: Controller, timeout: float) -> None:
    link, deadline = controller._link, time.monotonic() + timeout
    while not link.has_begun():
        if time.monotonic() >= deadline:
            raise MigrationTimeout(
                f"query {link.id} has committed no epoch in {timeout:g} s; feed it data, wait longer, or look "
                "into Spark's UI for what its first epoch does",
                condition="NO_EPOCH_COMMITTED",
                timeout=timeout,
            )
        time.sleep(link.poll_s)


#: Arguments that are checked where they are used, because that gives a better message.
_LOOKED_AT = ("to", "strategy", "place_on", "executor_id", "deadline")


@renamed_arguments(("plan", "rescale"), partitions="to", assignment="to")
@checked(PlanError, but=_LOOKED_AT)
class Controller(ObservedQuery):
    """Rescales one run of a query. Thread-safe; made by `attach`.

    Every method asks the driver, through py4j or Spark Connect; the property `query` doesn't. Methods return
    values that don't change afterwards, except for `Migration`, whose `status` asks the driver each time.
    """

    def migration(self) -> Migration | None:
        """The migration under way, which an earlier run of the query may have left; None if there is none."""
        text = self._link.current_migration()
        if text is None:
            return None
        data = json.loads(text)
        return Migration(self, data["id"], MigrationPlan.from_json(json.dumps(data["plan"])))

    def plan(
        self, to: Target, *, strategy: Strategy | str | None = None, prepare: bool = True
    ) -> MigrationPlan:
        """Makes a plan from the table in force to another one. Nothing happens until you submit it.

        The plan knows the bytes of the bins, and the earliest epoch at which its first step can take effect.

        Parameters
        ----------
        to : int, RoutingTable, LoadTarget or sequence of int
            Where the plan leads. A number of state partitions, from 1 to the number of bins, spreads the bins
            evenly over them with the fewest moves. You can also give a table, a target made by `target`, or the
            owner of each bin; the highest owner is then the last partition.
        strategy : Strategy or str, optional
            How to cut the moves into steps. Strategies also have names, as on the command line: `"fluid"`,
            `"batched:16"`. By default each step has a quarter of the bins. `Bounded` strategies are given the
            bytes of the bins, the rate of the query's earlier steps, and the number of cores.
        prepare : bool
            The value that you are going to give to `submit`. If it is False, the default strategy is the one
            that takes effect soonest: `OnDemand` if the operators look their state up by key, else
            `AllAtOnce`. Durations are then estimated from earlier steps that were not prepared.

        Raises
        ------
        PlanError
            If the target is impossible, or the strategy is `Bounded` and the bytes of the bins are not known.
        MigrationError
            If the query has not planned its first epoch.
        """
        chosen = None if strategy is None else strategy_of(strategy)
        now = self._in_force()
        source = now.table
        target = table_of(to, source)
        if chosen is not None:
            cut = chosen
        else:
            cut = default_strategy(source) if prepare else strategy_at_once(fetches_rows=not now.whole_bins)
        sizes = self._sizes(source.bins)
        if isinstance(cut, Bounded):
            if sizes is None and cut.bin_bytes is None:
                raise self._without_bytes()
            cut = cut.with_costs(
                sizes, bytes_per_s=self._rate(prepare=prepare), cores=self._link.task_slots() or 1
            )
        plan = cut.plan(source, target)
        sizes = plan.bin_bytes if sizes is None else sizes
        return replace(
            plan,
            bin_bytes=sizes,
            earliest_epoch=self._link.earliest_epoch(plan.to_json(), prepare=prepare),
            whole_bins=now.whole_bins if plan.on_demand else (),
        )

    def submit(
        self,
        plan: MigrationPlan,
        *,
        start_epoch: int | None = None,
        place_on: Sequence[str] = (),
        prepare: bool = True,
        deadline: float | str | None = None,
        on_timeout: OnTimeout = "finish",
        guard: Guard | None = None,
    ) -> Migration:
        """Starts a migration by a plan.

        New partitions are opened first, empty, at the epoch after the next one that is planned. The
        first step takes effect after that, and not before `start_epoch`.

        Parameters
        ----------
        plan : MigrationPlan
            Made from the table in force.
        start_epoch : int, optional
            No step takes effect before this epoch.
        place_on : sequence of str, optional
            Ids of the executors on which new partitions should be placed, beginning with those that have the
            fewest partitions; by default all. Spark's scheduler treats a place as a preference.
        prepare : bool
            Whether bins are copied to their new owners in the background before their step takes
            effect. A step then waits for its copies, and its epoch takes about as long as any other.
            If it is False, steps take effect at once, and their epochs take the time to move the bins.
        deadline : float or str, optional
            When the last step has to be taken: so many seconds after the plan was accepted, or a text with a
            unit, such as `"10 min"`, `"2 h"` or `"30 epochs"`. The time goes on while the query is stopped.
        on_timeout : {"finish", "keep", "rollback"}
            What happens when the deadline passes. By default, the migration goes on, and the log says that it
            is late. With `"keep"`, no further step is taken, as if it were cancelled. With `"rollback"`, the
            steps that were taken are undone as well, the last one first.
        guard : Guard, optional
            How long epochs may take meanwhile. If too many are longer, the migration is rolled back.

        Raises
        ------
        PlanError
            If the plan starts from another table than the one in force, `start_epoch` has passed, `place_on`
            names an executor that is not alive, `deadline` is impossible, or `on_timeout` has no deadline.
        ConfigurationError
            If `place_on` is no sequence of ids.
        MigrationError
            If another migration is under way, or the query has ended.
        UnsupportedOperatorError
            If an operator or a setting of the query doesn't allow state to move.
        """
        by, live = Deadline.of(deadline), self._live(place_on)
        options = MigrationOptions(start_epoch, prepare, live, deadline=by, on_timeout=on_timeout, guard=guard)
        return self._submit(plan, options)

    def _submit(self, plan: MigrationPlan, options: MigrationOptions) -> Migration:
        id_ = self._link.submit(plan.to_json(), json.dumps(options.as_dict()))
        _log.info(
            "query %s: migration %s submitted, %d -> %d partitions, %d bins in %d steps",
            self._link.id,
            id_,
            plan.source.partitions,
            plan.target.partitions,
            len(plan.moves),
            len(plan.steps),
        )
        progress = json.loads(self._link.progress(id_))
        for expected in (progress.get("not_copied"), forecast_message(progress.get("forecast"))):
            if expected:
                _log.warning("migration %s: %s", id_, expected)
        return Migration(self, id_, plan)

    def rescale(
        self,
        to: Target,
        *,
        strategy: Strategy | str | None = None,
        start_epoch: int | None = None,
        place_on: Sequence[str] = (),
        prepare: bool = True,
        deadline: float | str | None = None,
        on_timeout: OnTimeout = "finish",
        guard: Guard | None = None,
    ) -> Migration:
        """Makes a plan and submits it.

        Parameters
        ----------
        to : int, RoutingTable, LoadTarget or sequence of int
            Number of state partitions, from 1 to the number of bins, or anything else that `plan` takes.
        strategy
            See `plan`.
        start_epoch, place_on, prepare, deadline, on_timeout, guard
            See `submit`.

        Raises
        ------
        PlanError
            If `to` is impossible, or for the reasons given at `submit`.
        ConfigurationError
            If `place_on` is no sequence of ids.
        MigrationError
            If another migration is under way, or the query has ended.
        """
        by, live = Deadline.of(deadline), self._live(place_on)
        options = MigrationOptions(start_epoch, prepare, live, deadline=by, on_timeout=on_timeout, guard=guard)
        return self._submit(self.plan(to, strategy=strategy, prepare=prepare), options)

    def target(
        self, by: By = "rows", *, partitions: int | None = None, max_moves: int | None = None
    ) -> LoadTarget:
        """The table that `rebalance` would lead to, and its effect on the load. Nothing happens yet.

        Parameters
        ----------
        by : {"rows", "bytes", "both", "bins"}
            How load is measured: by rows read and written in the last epoch, by bytes of state, by both with
            equal weight, or only by the number of bins. If the last epoch had no rows, bytes are used instead,
            and if there is no state, the number of bins.
        partitions : int, optional
            Number of state partitions; by default as many as now.
        max_moves : int, optional
            The largest number of bins that may move.

        Raises
        ------
        PlanError
            If a number is impossible, or more than `max_moves` bins lose their partition.
        MigrationError
            If the query has not planned its first epoch.
        """
        stats = self._statistics(by)
        return balanced(self.routing(), stats, by, partitions=partitions, max_moves=max_moves)

    def rebalance(
        self,
        by: By = "rows",
        *,
        grow: bool = False,
        max_moves: int | None = None,
        strategy: Strategy | str | None = None,
        start_epoch: int | None = None,
        place_on: Sequence[str] = (),
        prepare: bool = True,
        deadline: float | str | None = None,
        on_timeout: OnTimeout = "finish",
        guard: Guard | None = None,
    ) -> Migration:
        """Spreads the load evenly over all partitions, and the partitions over all live executors.

        First, whole partitions move until all executors run equally many, within one. An executor that has
        joined, or was drained, gets its share. The number of partitions doesn't change. Then just enough bins
        move to bring the busiest partition within a tenth of the best possible; see `target`. A bin that is
        hotter than a partition's fair share is logged.

        Parameters
        ----------
        by, max_moves
            See `target`.
        grow : bool
            Whether executors that run no partition get new ones instead, as many as the others have on average.
        strategy
            See `plan`.
        start_epoch, prepare, deadline, on_timeout, guard
            See `submit`. If it is rolled back, the bins return; whole partitions stay where they are.
        place_on : sequence of str, optional
            Ids of the executors that get partitions; by default all, or with `grow` those that run none.

        Raises
        ------
        PlanError
            As `target`, or for the reasons given at `submit`.
        ConfigurationError
            If `place_on` is no sequence of ids.
        MigrationError
            If another migration is under way, or the query has ended.
        """
        wanted, by_then = executor_ids(place_on), Deadline.of(deadline)
        options = MigrationOptions(
            start_epoch, prepare, wanted, deadline=by_then, on_timeout=on_timeout, guard=guard
        )
        chosen = None if strategy is None else strategy_of(strategy)
        placement = self._placement().rejoined
        placement.require_live(wanted)
        table = self.routing()
        n = placement.partitions_with_idle(table.bins) if grow else table.partitions
        target = self.target(by, partitions=n, max_moves=max_moves)
        for hot in target.hot:
            _log.warning("query %s: %s", self._link.id, hot)
        plan = self.plan(target, strategy=chosen, prepare=prepare)
        if n > table.partitions:
            options = replace(options, place_on=wanted or placement.idle)
        else:
            options = replace(options, places=placement.spread(target.after, wanted))
        return self._submit(plan, options)

    def drain(
        self,
        executor_id: str,
        *,
        start_epoch: int | None = None,
        place_on: Sequence[str] = (),
        prepare: bool = True,
    ) -> Migration:
        """Empties an executor before it is removed.

        Its partitions move to other executors as a whole. No bin gets another partition, so this works with
        all operators. When the migration is over, the executor runs no partition, and it gets none until a
        `rebalance` or `place_on` gives it some.

        Parameters
        ----------
        executor_id : str
            The executor. Spark may be decommissioning it already.
        start_epoch : int, optional
            No partition moves before this epoch.
        place_on : sequence of str, optional
            Ids of the executors that get its partitions; by default all others. Those that have standbys
            of the partitions come first, and then those with the fewest partitions.
        prepare : bool
            Whether the files of a partition are fetched in the background before it moves.

        Raises
        ------
        PlanError
            If the executor, or one of `place_on`, is not alive, or there is no other one.
        ConfigurationError
            If `place_on` is no sequence of ids.
        MigrationError
            If another migration is under way, or the query has ended.
        """
        if not isinstance(executor_id, str):
            wanted_id = f"the executor's id as text, as in the column executor of stats(): {str(executor_id)!r}"
            raise impossible(PlanError, "executor_id", executor_id, wanted_id)
        wanted, table = executor_ids(place_on), self.routing()
        places = self._placement().drained(executor_id, wanted)
        options = MigrationOptions(start_epoch, prepare, wanted, executor_id, places)
        return self._submit(self.plan(table), options)

    def savepoint(self, name: str) -> Savepoint:
        """Keeps the state of the newest committed epoch, to go back to it.

        This is what `binshift.savepoints.create` does, but the driver does it, so a client of Spark Connect
        needs no access to the checkpoint. No state is copied, and no epoch waits.

        Parameters
        ----------
        name : str
            Up to 100 letters, digits, dots, dashes and underscores.

        Raises
        ------
        ConfigurationError
            If the name is impossible or taken, no epoch is committed yet, or a file is missing.
        MigrationError
            If the query has ended.
        """
        made = json.loads(self._link.savepoint(name))
        return savepoint_of(made["id"], made)

    def _rate(self, *, prepare: bool) -> float | None:
        """Bytes that a partition adopts in a second, judging by earlier steps."""
        epochs = distinct(self._link.recent_progress())
        unprepared = adopt_rate(epochs, prepared=False)
        # Steps without copies are slower, so their rate is a safe estimate for steps with copies, too.
        return (adopt_rate(epochs, prepared=True) or unprepared) if prepare else unprepared

    def _live(self, place_on: Sequence[str]) -> tuple[str, ...]:
        """The executors of `place_on`; raises if one of them isn't alive."""
        wanted = executor_ids(place_on)
        if wanted:
            self._placement().require_live(wanted)
        return wanted


def _session(name_or_id: str, spark: SparkSession | None) -> SparkSession:
    session = spark if spark is not None else any_session()
    if session is None:
        raise ConfigurationError(
            f"there is no session to look for query {name_or_id!r} in; start one, or give spark=...",
            condition="QUERY_NOT_FOUND",
        )
    return session


def _find(name_or_id: str, session: SparkSession) -> StreamingQuery:
    active = session.streams.active
    for query in active:
        if name_or_id in (str(query.id), query.name):
            return query
    names = ", ".join(str(q.name or q.id) for q in active) or "none"
    raise ConfigurationError(
        f"no active query has the name or id {name_or_id!r}; active are: {names}", condition="QUERY_NOT_FOUND"
    )
