"""An entry of the routing log, as Python reads it: a table, and the step that led to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from binshift.control.damage import NOT_UNDERSTOOD, reason_of
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
    """What `routing/<epoch>` holds.

    Parameters
    ----------
    table : RoutingTable
        In force from its epoch on.
    step : mapping or None
        migration_id, index, steps, strategy, moves and opening of the step that led to the table; None for the
        first one.
    written_at : str
        When it was written, UTC, in ISO form.
    previous : int
        The epoch of the entry that this one follows; -1 if there is none.
    """

    table: RoutingTable
    step: Mapping[str, Any] | None
    written_at: str
    previous: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RoutingEntry:
        """From the JSON of the file.

        Raises
        ------
        ValueError
            If a field is missing, or the table is impossible; says which.
        """
        try:
            table = RoutingTable(data["partitions"], tuple(data["assignment"]), epoch=int(data["epoch"]))
            datetime.fromisoformat(data["written_at"])
            step = data.get("step")
            if step is not None:
                _require_step(step)
            return cls(table, step, data["written_at"], int(data["previous"]))
        except (*NOT_UNDERSTOOD, PlanError) as error:
            raise ValueError(reason_of(error)) from error


def _require_step(step: Mapping[str, Any]) -> None:
    for name, kind in _STEP:
        if type(step[name]) is not kind:
            raise TypeError(f"{name} of its step is {step[name]!r:.100}")
