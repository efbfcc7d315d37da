"""A checkpoint as any process can read it: its control files, by any URI that pyarrow knows.

What is read here is what the driver writes (ARCHITECTURE.md, "In the checkpoint"). Nothing of Spark is needed.
"""

from __future__ import annotations

import json
from typing import Any

from binshift.errors import ConfigurationError
from binshift.files import Files
from binshift.plan import MigrationPlan
from binshift.routing import RoutingTable

__all__ = ["Checkpoint", "PlannedMigration", "open_checkpoint"]

_FORMAT = 1


class PlannedMigration:
    """The migration of `plan.json`, which is under way or waits for the query to start."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.id: str = data["id"]
        self.cancelled: bool = data["cancelled"]
        self.plan = MigrationPlan.from_json(json.dumps(data["plan"]))


def open_checkpoint(uri: str) -> Checkpoint:
    """The checkpoint at a path or URI.

    Raises
    ------
    ConfigurationError
        If pyarrow cannot open it, or it is no checkpoint of a query with binshift's provider.
    """
    checkpoint = Checkpoint(Files(uri))
    if checkpoint.layout() is None:
        raise ConfigurationError(
            f"{uri} has no binshift/layout.json: it is not the checkpoint of a query with binshift's provider, "
            "or the query has not planned its first epoch"
        )
    return checkpoint


class Checkpoint:
    """Reads the control files of a checkpoint, each as it is now. Made by `open_checkpoint`."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @property
    def uri(self) -> str:
        """The path or URI that it was opened with."""
        return self.files.name

    def layout(self) -> dict[str, Any] | None:
        """`layout.json`: format, bins, Spark version, and the storage of each operator."""
        return self._read("binshift/layout.json")

    def committed_epoch(self) -> int:
        """The newest epoch that was committed; -1 if there is none."""
        return max(self.files.numbers("commits"), default=-1)

    def logged_epoch(self) -> int:
        """The newest epoch whose offsets were logged; -1 if there is none."""
        return max(self.files.numbers("offsets"), default=-1)

    def routing(self) -> RoutingTable:
        """The table in force at the newest epoch that was logged.

        Raises
        ------
        ConfigurationError
            If the routing log has no such entry.
        """
        logged = max(self.logged_epoch(), 0)
        epoch = max((e for e in self.files.numbers("binshift/routing") if e <= logged), default=None)
        entry = None if epoch is None else self._read(f"binshift/routing/{epoch}")
        if entry is None:
            raise ConfigurationError(
                f"{self.uri} has no routing entry at or before epoch {logged}; restore it from a copy"
            )
        return RoutingTable(entry["partitions"], tuple(entry["assignment"]), entry["epoch"])

    def migration(self) -> PlannedMigration | None:
        """The migration under way, also one that waits for the query to be started again."""
        data = self._read("binshift/plan.json")
        return None if data is None else PlannedMigration(data)

    def steps(self) -> list[dict[str, Any]]:
        """The entries of the routing log that a step led to, oldest first, also those not committed yet.

        Each has epoch, partitions, written_at_ms and step, and whether its epoch was committed.
        """
        committed = self.committed_epoch()
        return [
            s for e in self.files.numbers("binshift/routing") if (s := self._step(e, committed)) is not None
        ]

    def steps_of(self, migration: str) -> tuple[int, int | None]:
        """Committed steps of a migration, and the epoch of its step that is not committed, if there is one."""
        committed = self.committed_epoch()
        next_epoch = None
        # The newest entries tell all, and the oldest may be gone.
        for epoch in reversed(self.files.numbers("binshift/routing")):
            step = self._step(epoch, committed)
            if step is None or step["step"]["migration"] != migration:
                if epoch <= committed:
                    break
            elif step["committed"]:
                return step["step"]["index"] + 1, next_epoch
            else:
                next_epoch = epoch
        return 0, next_epoch

    def _step(self, epoch: int, committed: int) -> dict[str, Any] | None:
        """The entry of an epoch, if a step led to it and not the opening of partitions."""
        entry = self._read(f"binshift/routing/{epoch}")
        if entry is None or not entry.get("step") or entry["step"]["opening"]:
            return None
        return {
            "epoch": epoch,
            "partitions": entry["partitions"],
            "written_at_ms": entry["writtenAtMs"],
            "step": entry["step"],
            "committed": epoch <= committed,
        }

    def _read(self, name: str) -> dict[str, Any] | None:
        text = self.files.find(name)
        if text is None:
            return None
        try:
            data: dict[str, Any] = json.loads(text)
            found = data["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{self.uri}/{name} is damaged ({error!r}); restore it from a copy of the checkpoint"
            ) from error
        if found != _FORMAT:
            raise ConfigurationError(
                f"{self.uri}/{name} has format {found}; this binshift reads format {_FORMAT}; use the binshift "
                "version that wrote the checkpoint"
            )
        return data
