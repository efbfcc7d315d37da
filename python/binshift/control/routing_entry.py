"""An entry of the routing log: a table, and the step that led to it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from binshift.control.damage import NOT_UNDERSTOOD, plain_name, reason_of
from binshift.errors import PlanError
from binshift.planning.routing import RoutingTable

__all__ = ["RoutingEntry"]

_STEP = (
    ("migration_id", str),
    ("index", int),
    ("steps", int),
    ("strategy", str),
    ("moves", int),
    ("opening", bool),
)


@dataclass(frozen=True, slots=True)
class RoutingEntry:
    """The content of a file in `routing/`.

    Parameters
    ----------
    file : str
        The name of the file: the entry's epoch and the CRC-32 of its content; in older versions only the epoch.
    table : RoutingTable
        In force from its epoch on.
    step : mapping or None
        migration_id, index, steps, strategy, moves and opening of the step that led to the table; None for the
        first one.
    written_at : str
        When it was written, UTC, in ISO form.
    previous : str or None
        The file of the entry that this one follows; the epoch of an older one is that as well.
    """

    file: str
    table: RoutingTable
    step: Mapping[str, Any] | None
    written_at: str
    previous: str | None

    @property
    def epoch(self) -> int:
        """The epoch from which on its table is in force."""
        return int(self.table.epoch)

    @classmethod
    def of(cls, file: str, text: bytes, data: Mapping[str, Any]) -> RoutingEntry:
        """Makes an entry from the content of a file, and the same content parsed as JSON.

        Raises
        ------
        ValueError
            If a field is missing, the table is impossible, or the content doesn't match the checksum in the
            file's name; the message says which.
        """
        _, _, checksum = file.partition("-")
        if checksum and f"{zlib.crc32(text):08x}" != checksum:
            raise ValueError("its content is not that of its name, so it was changed")
        try:
            table = RoutingTable(data["partitions"], tuple(data["assignment"]), epoch=int(data["epoch"]))
            datetime.fromisoformat(data["written_at"])
            step = data.get("step")
            if step is not None:
                _require_step(step)
            if int(file.partition("-")[0]) != table.epoch:
                raise ValueError(f"it is of epoch {table.epoch}")
            previous = data.get("previous") if checksum else int(data["previous"])
            is_first = previous is None or previous == -1
            return cls(file, table, step, data["written_at"], None if is_first else plain_name(str(previous)))
        except (*NOT_UNDERSTOOD, PlanError) as error:
            raise ValueError(reason_of(error)) from error


def _require_step(step: Mapping[str, Any]) -> None:
    for name, kind in _STEP:
        if type(step[name]) is not kind:
            raise TypeError(f"{name} of its step is {step[name]!r:.100}")
