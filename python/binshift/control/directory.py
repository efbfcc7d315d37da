"""Reads the control files of a checkpoint, from any process, by any URI that pyarrow knows.

The driver writes these files (ARCHITECTURE.md, "In the checkpoint"). Spark isn't needed to read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from binshift.control.damage import NOT_UNDERSTOOD, reason_of
from binshift.control.files import Files
from binshift.control.formats import require_format
from binshift.control.routing_entry import RoutingEntry
from binshift.control.routing_log import RoutingLog
from binshift.errors import ConfigurationError, PlanError
from binshift.numbers import is_whole
from binshift.planning.plan import MigrationPlan
from binshift.planning.routing import MAX_BINS, RoutingTable
from binshift.session import PROVIDER, PROVIDER_KEY, STOCK_PROVIDER

__all__ = ["ControlDir", "PlannedMigration", "open_directory", "require_checkpoint"]


#: How many entries of later migrations are read to find a step of a migration that is over.
_MAX_OTHERS = 64
#: Where earlier versions kept the migration under way. Each one has a file of its own now.
_OLD_PLAN = "binshift/plan.json"
_PLANS = "binshift/plans"
_STORAGES = ("binned", "single", "plain")


def checked_layout(data: dict[str, Any]) -> dict[str, Any]:
    """Checks the content of `layout.json`; raises one of NOT_UNDERSTOOD if it is no layout."""
    if not is_whole(data["bins"], 1, MAX_BINS):
        raise ValueError(f"it has {data['bins']!r:.100} bins")
    if not isinstance(data["spark_version"], str):
        raise ValueError("its spark_version is no text")
    if (epoch := data.get("taken_over_at")) is not None and not is_whole(epoch):
        raise ValueError(f"it was taken over at epoch {epoch!r:.100}")
    for operator in data["operators"]:
        if not is_whole(operator["id"]) or not isinstance(operator["name"], str):
            raise ValueError(f"it has an operator {operator!r:.100}")
        if operator["storage"] not in _STORAGES:
            raise ValueError(f"it has the unknown storage {operator['storage']!r:.100}")
    return data


class PlannedMigration:
    """A migration of `plans/`, which is under way or waits for the query to start."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.id = str(data["id"])
        self.cancelled = bool(data["cancelled"])
        stopped = data.get("stopped") or {}
        #: Why it takes no further step, unless somebody has cancelled it.
        self.stopped_because: str | None = stopped.get("why")
        #: True if the steps that it has taken are going to be undone, by a migration of its own.
        self.rolls_back = bool(stopped.get("rolls_back"))
        options = data.get("options", {})
        #: True if whole partitions move to other executors. Only the driver knows when they have arrived.
        self.moves_partitions = bool(options.get("vacate") or options.get("places"))
        #: When its last step has to be taken, what happens then, and how long epochs may take, as in the file.
        self.limits: dict[str, Any] = {n: options.get(n) for n in ("deadline", "on_timeout", "guard")}
        self.plan = MigrationPlan.from_json(json.dumps(data["plan"]))


def open_directory(uri: str) -> ControlDir:
    """The checkpoint at a path or URI.

    Raises
    ------
    ConfigurationError
        If pyarrow cannot open it, or it is no checkpoint of a query with binshift's provider.
    """
    directory = ControlDir(Files(uri))
    if directory.layout() is None:
        require_checkpoint(directory.files)
        raise ConfigurationError(
            _without_layout(directory),
            condition="CHECKPOINT_WITHOUT_BINS",
            checkpoint=directory.uri,
            provider=directory.provider(),
        )
    return directory


def require_checkpoint(files: Files) -> None:
    """Refuses a directory that doesn't exist, or is no checkpoint.

    Raises
    ------
    ConfigurationError
        The message says which of the two it is.
    """
    if not files.exists(""):
        raise ConfigurationError(
            f"{files.name} does not exist; give the checkpointLocation of the query",
            condition="CHECKPOINT_NOT_FOUND",
            checkpoint=files.name,
        )
    if not files.exists("offsets"):
        raise ConfigurationError(
            f"{files.name} is not the checkpoint of a streaming query: it has no directory offsets; give the "
            "checkpointLocation of the query",
            condition="NOT_A_CHECKPOINT",
            checkpoint=files.name,
        )


class ControlDir:
    """Reads the control files of a checkpoint, each as it is now. Made by `open_directory`."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @property
    def uri(self) -> str:
        """The path or URI that it was opened with, without credentials."""
        return self.files.name

    def layout(self) -> dict[str, Any] | None:
        """`layout.json`: format, bins, Spark version, and the storage of each operator."""
        name = "binshift/layout.json"
        data = self.read(name)
        try:
            return None if data is None else checked_layout(data)
        except NOT_UNDERSTOOD as error:
            raise self._damaged(name, error) from error

    def committed_epoch(self) -> int:
        """The newest epoch that was committed; -1 if there is none."""
        return max(self.files.numbers("commits"), default=-1)

    def logged_epoch(self) -> int:
        """The newest epoch whose offsets were logged; -1 if there is none."""
        return max(self.files.numbers("offsets"), default=-1)

    def query_id(self) -> str | None:
        """The id of the query, which stays the same over its runs; None before its first start.

        Relies on Spark: the file `metadata` of a checkpoint has it.
        """
        text = self.files.find("metadata")
        try:
            return None if text is None else str(json.loads(text)["id"])
        except NOT_UNDERSTOOD as error:
            raise self._damaged("metadata", error) from error

    def provider(self, epoch: int | None = None) -> str | None:
        """Class name of the provider that an epoch was logged with, by default the newest; None without one.

        Relies on Spark: the second line of an offset log's file has the settings of its epoch.
        """
        text = self.files.find(f"offsets/{self.logged_epoch() if epoch is None else epoch}")
        if text is None:
            return None
        lines = text.split(b"\n", 2)
        try:
            conf = json.loads(lines[1])["conf"]
        except NOT_UNDERSTOOD:
            return None
        return str(conf[PROVIDER_KEY]) if PROVIDER_KEY in conf else None

    def routing(self) -> RoutingTable:
        """The table in force at the newest logged epoch.

        Raises
        ------
        ConfigurationError
            If the routing log has no such entry.
        """
        logged = max(self.logged_epoch(), 0)
        entry = self._routing_log().at(logged)
        if entry is None:
            raise ConfigurationError(
                f"{self.uri} has no routing entry at or before epoch {logged}; restore it from a copy",
                condition="ROUTING_LOG_DAMAGED",
                epoch=logged,
            )
        return entry.table

    def migration(self) -> PlannedMigration | None:
        """The migration under way, which may be waiting for the query to be started again.

        If two drivers have each accepted one, it's the one that goes on first.
        """
        files = (n for n in self.files.sizes(_PLANS) if n.endswith(".json") and n[0] not in "._")
        ids = sorted(n.removesuffix(".json") for n in files)
        for name in (_OLD_PLAN, *(f"{_PLANS}/{i}.json" for i in ids)):
            if (data := self.read(name)) is not None:
                try:
                    return PlannedMigration(data)
                except (*NOT_UNDERSTOOD, PlanError) as error:
                    raise self._damaged(name, error) from error
        return None

    def steps(self) -> list[dict[str, Any]]:
        """The entries of the routing log that were made by steps, oldest first, including uncommitted ones.

        Each has epoch, partitions, written_at and step, and whether its epoch was committed.
        """
        committed = self.committed_epoch()
        return [s for e in reversed(list(self._entries())) if (s := _step(e, committed)) is not None]

    def newest_migration(self) -> str | None:
        """The id of the migration under way, or else of the one that took the newest step; None without any."""
        under_way = self.migration()
        newest = (e.step["migration_id"] for e in self._entries() if e.step is not None)
        return next(newest, None) if under_way is None else under_way.id

    def steps_of(self, migration: str, *, is_over: bool = False) -> tuple[int, int | None]:
        """Committed steps of a migration, and the epoch of its step that is not committed, if there is one.

        Parameters
        ----------
        migration : str
            Its id.
        is_over : bool
            Whether it may be over, so that later entries may belong to other migrations. A few are skipped.
        """
        committed = self.committed_epoch()
        next_epoch = None
        others = 0
        # The newest entries are enough, and the oldest may be gone.
        for entry in self._entries():
            step = _step(entry, committed)
            if step is None or step["step"]["migration_id"] != migration:
                if entry.epoch <= committed:
                    others += 1
                    if not is_over or others >= _MAX_OTHERS:
                        break
            elif step["committed"]:
                return step["step"]["index"] + 1, next_epoch
            else:
                next_epoch = entry.epoch
        return 0, next_epoch

    def _routing_log(self) -> RoutingLog:
        return RoutingLog(self.files, self._entry)

    def _entries(self) -> Iterator[RoutingEntry]:
        """The entries, newest first. The newest may be for the epoch after the newest logged one."""
        log, logged = self._routing_log(), max(self.logged_epoch(), 0)
        if (prepared := log.prepared(logged)) is not None:
            yield prepared
        yield from log.back_from(logged)

    def _entry(self, path: str) -> RoutingEntry | None:
        name, file = f"binshift/{path}", path.rpartition("/")[2]
        data, text = self.read(name), self.files.find(name)
        try:
            return None if data is None or text is None else RoutingEntry.of(file, text, data)
        except ValueError as error:
            raise self._damaged(name, error) from error

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of this format; None if it doesn't exist.

        Raises
        ------
        ConfigurationError
            If it is damaged, or of another format.
        """
        text = self.files.find(name)
        if text is None:
            return None
        try:
            data: dict[str, Any] = json.loads(text)
            require_format(data, name, self.uri)
        except NOT_UNDERSTOOD as error:
            raise self._damaged(name, error) from error
        return data

    def _damaged(self, name: str, error: Exception) -> ConfigurationError:
        return ConfigurationError(
            f"{self.uri}/{name} is damaged ({reason_of(error)}); restore it from a copy of the checkpoint",
            condition="CHECKPOINT_DAMAGED",
            file=name,
        )


def _step(entry: RoutingEntry, committed: int) -> dict[str, Any] | None:
    """The step of an entry; None if the entry only opened partitions, or is the first."""
    if entry.step is None or entry.step["opening"]:
        return None
    return {
        "epoch": entry.epoch,
        "partitions": entry.table.partitions,
        "written_at": entry.written_at,
        "step": entry.step,
        "committed": entry.epoch <= committed,
    }


def _without_layout(directory: ControlDir) -> str:
    """Says why a checkpoint has no files of binshift, and what to do about it."""
    committed = directory.committed_epoch()
    # Relies on Spark: an operator has a directory before the first epoch in which it ran is committed.
    if committed >= 0 and not directory.files.directories("state"):
        return (
            f"{directory.uri} has no state, though epoch {committed} is committed: its query has no stateful "
            "operator, or none that has run yet. There is nothing to rescale; the state of what runs inside "
            "foreachBatch is not kept in the checkpoint"
        )
    provider = directory.provider()
    if provider == STOCK_PROVIDER:
        return (
            f"{directory.uri} was written by Spark's RocksDB provider; to have binshift take it over, stop its "
            "query and start it on this checkpoint in a session made with binshift.configure()"
        )
    if provider not in (None, PROVIDER):
        return (
            f"{directory.uri} was written by {provider}; stop its query, and rewrite the checkpoint with "
            f"'binshift convert {directory.uri} --to binshift'"
        )
    if committed >= 0 and directory.provider(committed) == PROVIDER:
        return (
            f"{directory.uri} has lost its directory binshift, which says where each key's state is; restore "
            "it from a copy of the checkpoint"
        )
    return f"the query of {directory.uri} has not planned its first epoch; feed it data, and ask again"
