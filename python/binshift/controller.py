"""Attaching to a running query, and rescaling it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from binshift.bounded import Bounded
from binshift.epoch_log import epochs
from binshift.errors import ConfigurationError, PlanError
from binshift.jvm import call, handle_of, task_slots
from binshift.load import By
from binshift.migration import Migration
from binshift.observed import ObservedQuery
from binshift.options import MigrationOptions
from binshift.plan import MigrationPlan
from binshift.report import adopt_rate
from binshift.routing import RoutingTable
from binshift.spark import require_classic
from binshift.strategies import Strategy, default_strategy
from binshift.targets import LoadTarget, balanced

__all__ = ["Controller", "attach"]

_log = logging.getLogger("binshift")


def attach(query: StreamingQuery | str | UUID, spark: SparkSession | None = None) -> Controller:
    """The controller of a running query.

    Parameters
    ----------
    query : StreamingQuery or str or UUID
        The query, or its name or id.
    spark : SparkSession, optional
        Session in which to look for a name or id.

    Raises
    ------
    ConfigurationError
        If there is no such query, or it does not use binshift's provider, or is of Spark Connect.
    MigrationError
        If the query has ended.
    UnsupportedVersionError
        If Spark is not 4.3.

    Examples
    --------
    >>> controller = binshift.attach(query)  # doctest: +SKIP
    >>> controller.rescale(8).wait()  # doctest: +SKIP
    """
    if isinstance(query, str | UUID):
        query = _find(str(query), spark)
    return Controller(query, handle_of(query))


class Controller(ObservedQuery):
    """Rescales one run of a query. Thread-safe; made by `attach`."""

    @property
    def migration(self) -> Migration | None:
        """The migration under way, also one that an earlier run of the query left; None if there is none."""
        text = call(self._handle.currentMigration)
        if text is None:
            return None
        data = json.loads(text)
        return Migration(self, data["id"], MigrationPlan.from_json(json.dumps(data["plan"])))

    def plan(
        self,
        partitions: int | None = None,
        assignment: Sequence[int] | None = None,
        strategy: Strategy | None = None,
    ) -> MigrationPlan:
        """A plan from the table in force to another one. Nothing happens yet.

        Parameters
        ----------
        partitions : int, optional
            Number of state partitions, 1 to bins. Alone, bins are spread evenly with the fewest moves;
            with `assignment`, the partitions beyond its highest owner are left empty.
        assignment : sequence of int, optional
            Owner of each bin.
        strategy : Strategy, optional
            How to cut the moves into steps; by default a quarter of the bins per step. `Bounded` ones
            get the bytes of the bins, the rate of the query's earlier steps, and the number of cores.

        Raises
        ------
        PlanError
            If the target is impossible.
        MigrationError
            If the query has not planned its first epoch.
        """
        source = self.routing()
        if assignment is not None:
            owners = tuple(assignment)
            n = partitions if partitions is not None else max(owners, default=0) + 1
            target = RoutingTable(n, owners)
        elif partitions is not None:
            target = source.balanced(partitions)
        else:
            raise PlanError("there is no target; give partitions=... or assignment=...")
        cut = strategy if strategy is not None else default_strategy(source)
        sizes = self._sizes(source.bins)
        if isinstance(cut, Bounded):
            cut = cut.with_costs(sizes, adopt_rate(epochs(self._query)), task_slots() or 1)
        plan = cut.plan(source, target)
        return plan if sizes is None else plan.with_bytes(sizes)

    def submit(self, plan: MigrationPlan, start_epoch: int | None = None, prepare: bool = True) -> Migration:
        """Starts a plan.

        New partitions are opened first, empty, at the epoch after the next one that is planned. The
        first step takes effect after that, and not before `start_epoch`.

        Parameters
        ----------
        plan : MigrationPlan
            Made from the table in force.
        start_epoch : int, optional
            No step takes effect before this epoch.
        prepare : bool
            Whether bins are copied to their new owners in the background before their step takes
            effect, which waits for the copies; an epoch with a step then takes about as long as any
            other. Without it, steps take effect at once, and their epochs take the time to move the bins.

        Raises
        ------
        PlanError
            If the plan starts from another table than the one in force, or `start_epoch` has passed.
        MigrationError
            If another migration is under way, or the query has ended.
        UnsupportedOperatorError
            If an operator or a setting of the query does not allow it.
        """
        return self._submit(plan, MigrationOptions(start_epoch, prepare))

    def _submit(self, plan: MigrationPlan, options: MigrationOptions) -> Migration:
        id_ = call(self._handle.submit, plan.to_json(), json.dumps(options.as_dict()))
        _log.info(
            "query %s: migration %s submitted, %d -> %d partitions, %d bins in %d steps",
            self._query.id,
            id_,
            plan.source.partitions,
            plan.target.partitions,
            len(plan.moves),
            len(plan.steps),
        )
        return Migration(self, id_, plan)

    def rescale(
        self,
        partitions: int,
        strategy: Strategy | None = None,
        prepare: bool = True,
        place_on: Sequence[str] = (),
    ) -> Migration:
        """Plans and submits: the query goes to `partitions` state partitions. See `plan` and `submit`.

        Parameters
        ----------
        partitions : int
            Number of state partitions, 1 to bins.
        strategy : Strategy, optional
            How to cut the moves into steps.
        prepare : bool
            Whether bins are copied before their step takes effect.
        place_on : sequence of str, optional
            Ids of the executors on which new partitions are to be placed, those with the fewest
            partitions first; by default all. Placement is a preference of Spark's scheduler.

        Raises
        ------
        PlanError
            If `partitions` is impossible, or `place_on` names an executor that is not alive.
        """
        if place_on:
            self._placement().require_live(place_on)
        options = MigrationOptions(prepare=prepare, place_on=tuple(place_on))
        return self._submit(self.plan(partitions, strategy=strategy), options)

    def target(
        self,
        partitions: int | None = None,
        by: By = "rows",
        max_moves: int | None = None,
    ) -> LoadTarget:
        """The table that `rebalance` would lead to, and what it does to the load. Nothing happens yet.

        Parameters
        ----------
        partitions : int, optional
            Number of state partitions; as many as now by default.
        by : {"rows", "bytes", "both", "bins"}
            What load is: rows read and written in the last epoch, bytes of state, both with equal weight,
            or nothing but the number of bins. Where the last epoch had no rows, it is bytes; where
            there is no state, bins.
        max_moves : int, optional
            No more bins than this move.

        Raises
        ------
        PlanError
            If a number is impossible, or more than `max_moves` bins lose their partition.
        MigrationError
            If the query has not planned its first epoch.
        """
        return balanced(self.routing(), self._statistics(by), by, partitions, max_moves)

    def rebalance(
        self,
        strategy: Strategy | None = None,
        prepare: bool = True,
        by: By = "rows",
        max_moves: int | None = None,
    ) -> Migration:
        """Spreads the load evenly over all partitions, and the partitions over all live executors.

        Executors that run no partition yet, since they have joined lately, get as many new partitions
        as the others have on average. Then as few bins move as bring the busiest partition within a tenth of
        the best possible; see `target`. A bin that is hotter than a partition's fair share is logged.

        Parameters
        ----------
        strategy : Strategy, optional
            How to cut the moves into steps.
        prepare : bool
            Whether bins are copied before their step takes effect.
        by, max_moves
            See `target`.

        Raises
        ------
        PlanError
            As `target`.
        MigrationError
            If another migration is under way, or the query has ended.
        """
        placement = self._placement()
        target = self.target(placement.partitions_with_idle(self.routing().bins), by, max_moves)
        for hot in target.hot:
            _log.warning("query %s: %s", self._query.id, hot)
        plan = self.plan(target.table.partitions, target.table.assignment, strategy)
        return self._submit(plan, MigrationOptions(prepare=prepare, place_on=placement.idle))

    def drain(self, executor_id: str, strategy: Strategy | None = None, prepare: bool = True) -> Migration:
        """Empties an executor before it is removed.

        The bins of its partitions go to the partitions of other executors; when they are there, the
        partitions, which by then hold nothing, are run elsewhere. They get bins again with the next
        `rebalance`.

        Raises
        ------
        PlanError
            If the executor is not alive, or no partition is on another one.
        """
        table = self.routing().without(self._placement().leaving(executor_id))
        plan = self.plan(table.partitions, table.assignment, strategy)
        return self._submit(plan, MigrationOptions(prepare=prepare, vacate=executor_id))


def _find(name_or_id: str, spark: SparkSession | None) -> StreamingQuery:
    session = spark if spark is not None else SparkSession.getActiveSession()
    if session is None:
        raise ConfigurationError(f"there is no session to look for query {name_or_id!r} in; give spark=...")
    require_classic(session)
    active = session.streams.active
    for query in active:
        if name_or_id in (str(query.id), query.name):
            return query
    names = ", ".join(str(q.name or q.id) for q in active) or "none"
    raise ConfigurationError(f"no active query has the name or id {name_or_id!r}; active are: {names}")
