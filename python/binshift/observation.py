"""Observes a running query: its routing, its load, its history."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.streaming.query import StreamingQuery

from binshift.arguments import checked
from binshift.control.history import history_table
from binshift.epoch_progress import distinct
from binshift.errors import ConfigurationError, MigrationError, PlanError, impossible
from binshift.link import QueryLink
from binshift.numbers import is_whole
from binshift.planning.load import By, Skew, bin_bytes, measured_loads, skew_of
from binshift.planning.placement import Placement
from binshift.planning.routing import RoutingTable
from binshift.stats import bin_stats_of, hot_keys_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ObservedQuery"]

_MAX_HOT_KEYS = 100
_WAIT = "feed it data, and let it run an epoch, for which binshift.attach(query, timeout=60) waits"
#: If this setting is off, Spark counts no rows, and the sizes of bins aren't known.
_TRACKING = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"


@dataclass(frozen=True, slots=True)
class InForce:
    """The driver's answer about the routing.

    Parameters
    ----------
    table : RoutingTable
        The table in force.
    whole_bins : tuple of str
        Reasons why new owners in an on-demand plan wait for whole bins; empty if they can fetch rows.
    """

    table: RoutingTable
    whole_bins: tuple[str, ...]


@checked(ConfigurationError, but=("link", "by", "n"))
class ObservedQuery:
    """One run of a query, for reading only. Thread-safe; the base of `Controller`, which can change it."""

    def __init__(self, link: QueryLink) -> None:
        self._link = link
        self._name = f"query {link.name or 'without a name'} ({link.id})"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}>"

    @property
    def query(self) -> StreamingQuery:
        """The query that is controlled.

        Raises
        ------
        ConfigurationError
            If another session of Spark Connect has started it, because only that session has it as an object.
        """
        return self._link.query

    def routing(self) -> RoutingTable:
        """The routing table in force.

        Raises
        ------
        MigrationError
            If the query has not planned its first epoch, so that there is no table yet.
        """
        return self._in_force().table

    def _in_force(self) -> InForce:
        text = self._link.routing()
        if text is None:
            self._link.has_begun()  # Raises why it never will, if the query has ended or keeps no state.
            raise MigrationError(
                f"query {self._link.id} has not planned its first epoch, so it has no routing table; {_WAIT}",
                condition="NO_EPOCH_PLANNED",
            )
        data = json.loads(text)
        table = RoutingTable(data["partitions"], tuple(data["assignment"]), epoch=data["epoch"])
        return InForce(table, tuple(data["whole_bins"]))

    def stats(self) -> pa.Table:
        """The contents of each bin, and the operations on it in the last committed epoch.

        There is a row for each operator and bin. The stores of an operator are summed. Operators that don't
        follow the routing table (because they have no grouping columns, or can't migrate) are left out. The
        table's metadata has the epoch.

        Returns
        -------
        pyarrow.Table
            operator (its id), name (as in the query's progress), bin, partition, executor (where the
            partition ran last; null if it has not run yet).

            keys: rows of state in all stores of the operator. A join of the older state formats has one row for
            each key, besides the rows of its values; Spark's progress counts only the latter. The number is
            exact, except after a crash of the driver, or if a foreachBatch starts jobs from threads of its own.
            In these cases, Spark's exact count of each partition is divided among its bins in the proportions
            that were last known, at most a minute or so ago. Null if
            `spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows` is off.

            bytes: bytes of keys and values, as Spark encodes them, uncompressed, in all column families. This
            is an estimate, because a rewritten or removed row is assumed to have had the mean size of its bin.
            It is exact while all rows of a bin have the same size. Null whenever keys is null.

            reads, writes: lookups and scans of a key, and puts, merges and removals, in that epoch.

        Raises
        ------
        MigrationError
            If the query has not committed an epoch in this run.
        """
        packed = self._link.statistics()
        if packed is None:
            self._link.has_begun()
            raise MigrationError(
                f"query {self._link.id} has committed no epoch in this run, so it has no statistics; {_WAIT}",
                condition="NO_EPOCH_COMMITTED",
            )
        return bin_stats_of(packed)

    def hot_keys(self, n: int = 10, *, timeout: float = 60.0) -> pa.Table:
        """The keys that the query reads and writes most: a bin can move away, but a key cannot be split.

        The stores count keys only because of this call, and only during the next epoch, in bounded memory. If a
        partition sees no more than a few hundred keys, the counts are exact. Otherwise, each key that makes up
        more than about 0.35 % of its partition's operations is found.

        Parameters
        ----------
        n : int
            Number of keys, 1 to 100.
        timeout : float
            Seconds to wait for the epoch.

        Returns
        -------
        pyarrow.Table
            A row for each key, hottest first: operator, name, bin, partition, key (its columns as text, joined
            by commas), operations (reads and writes that certainly happened), missing (how many more there may
            have been), share (operations divided by all of the bin). The table's metadata has the epoch.

        Raises
        ------
        ConfigurationError
            If `n` is out of range.
        MigrationError
            If the query ends, or commits no further epoch in time.
        """
        if not is_whole(n, 1, _MAX_HOT_KEYS):
            raise impossible(ConfigurationError, "n", n, f"a number of keys from 1 to {_MAX_HOT_KEYS}")
        # Raises if the query has no state, because then nobody samples keys.
        self._in_force()
        after = self._link.sample_keys(n)
        deadline = time.monotonic() + timeout
        while (text := self._link.hot_keys(after)) is None:
            self._link.require_active()
            if time.monotonic() >= deadline:
                raise MigrationError(
                    f"query {self._link.id} has committed no epoch in {timeout} s, so it saw no key; feed it "
                    "data and ask again",
                    condition="NO_EPOCH_COMMITTED",
                )
            time.sleep(self._link.poll_s)
        return hot_keys_of(text, n)

    @checked(PlanError)
    def skew(self, by: By = "rows") -> Skew:
        """How unevenly the partitions are loaded; see `target` for `by`.

        Raises
        ------
        MigrationError
            If the query has not planned its first epoch.
        """
        source, stats = self.routing(), self._statistics(by)
        kind, _ = measured_loads(stats, source.bins, by)
        return skew_of(source, stats, kind)

    def history(self) -> pa.Table:
        """A row for each step that took effect, oldest first, as far back as the routing log goes.

        Columns: epoch, partitions (from that epoch on), bins_moved, migration_id, strategy, step (from
        1), steps (of the plan), written_at (when the step became durable, UTC).
        """
        return history_table(json.loads(self._link.history()))

    @checked(PlanError)
    def plot(self, by: By = "rows") -> Figure:
        """The bins of each partition as a heat map, and the epochs that Spark remembers, with all steps marked.

        Parameters
        ----------
        by : {"rows", "bytes", "both", "bins"}
            What the colours of the bins show; see `target`.

        Raises
        ------
        ConfigurationError
            If matplotlib is not installed; it comes with the extra `plot`.
        MigrationError
            If the query has not planned its first epoch.
        """
        from binshift.plot import overview  # noqa: PLC0415 - matplotlib is optional

        table = self.routing()
        kind, loads = measured_loads(self._statistics(by), table.bins, by)
        steps = {r["epoch"]: r["bins_moved"] for r in self.history().to_pylist()}
        weights = None if kind == "bins" else loads
        return overview(table, weights, f"share of {kind}", distinct(self._link.recent_progress()), steps)

    def _placement(self) -> Placement:
        return Placement.of(json.loads(self._link.placement()))

    def _statistics(self, by: By = "both") -> pa.Table | None:
        """The statistics that `stats` returns."""
        return None if by == "bins" else self.stats()

    def _without_bytes(self) -> PlanError:
        """Says why there are no sizes of bins, which a bounded strategy needs, and what helps."""
        if self._link.statistics() is None:
            reason = "it has committed no epoch in this run; feed it data first"
        else:
            reason = f"{_TRACKING} is off; restart it with that setting on"
        return PlanError(
            f"query {self._link.id} does not know the bytes of its bins, because {reason}, or give "
            "Bounded(bin_bytes=[...])",
            condition="BYTES_UNKNOWN",
        )

    def _sizes(self, bins: int) -> tuple[int, ...] | None:
        """State bytes of each bin; None while nothing has been measured."""
        try:
            stats = self._statistics()
        except MigrationError:
            # No epoch was committed in this run yet. A plan does not need statistics.
            return None
        return None if stats is None else bin_bytes(stats, bins)
