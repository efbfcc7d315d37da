"""The deadline and the guard of a migration, which may end it before its last step."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Literal

from binshift.arguments import checked
from binshift.errors import PlanError, impossible
from binshift.numbers import is_whole

__all__ = ["Deadline", "Guard", "OnTimeout", "rollback_of", "undone_by"]

#: What happens when a migration's deadline passes.
OnTimeout = Literal["finish", "keep", "rollback"]

#: More than thirty years. The driver counts in milliseconds.
_MOST = 10**9
_LEAST_S = 0.001
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.ASCII)
_EPOCHS = ("epoch", "epochs")
_SECONDS = {
    **dict.fromkeys(("", "s", "second", "seconds"), 1),
    **dict.fromkeys(("min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
}
#: The driver gives the migration that undoes another one the other's id and this.
_ROLLBACK = "-rollback"


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the last step of a migration has to be taken, counted from the acceptance of its plan.

    Parameters
    ----------
    amount : float
        Seconds or epochs.
    unit : {"seconds", "epochs"}
    """

    amount: float
    unit: Literal["seconds", "epochs"] = "seconds"

    @classmethod
    def of(cls, value: float | str | None) -> Deadline | None:
        """The deadline that is meant by a number of seconds, or by a text with a unit, such as `30 epochs`.

        The JVM parses texts by the same rules (`client/Limits.scala`).

        Raises
        ------
        PlanError
            If the value is impossible.
        """
        if value is None:
            return None
        found = None
        if isinstance(value, str):
            found = cls._parsed(value)
        elif isinstance(value, Real) and not isinstance(value, bool):
            found = cls(float(value))
        if found is None or not 0 < found.amount <= _MOST:
            wanted = "a number of seconds above 0, or a text such as '600 s', '10 min', '2 h' or '30 epochs'"
            raise impossible(PlanError, "deadline", value, wanted)
        return found

    @classmethod
    def _parsed(cls, text: str) -> Deadline | None:
        if (found := _FORM.fullmatch(text.lower())) is None:
            return None
        number, unit = found[1], found[2]
        if unit in _EPOCHS:
            return cls(int(number), "epochs") if number.isdigit() else None
        return cls(float(number) * _SECONDS[unit]) if unit in _SECONDS else None

    def as_dict(self) -> dict[str, float]:
        """The deadline in the form that the driver reads."""
        return {self.unit: self.amount}


@checked(PlanError)
@dataclass(frozen=True, slots=True)
class Guard:
    """Watches how long epochs take while a migration is under way.

    After an epoch that took longer than `longest_epoch_s`, no step is taken until one is short enough again.
    Once `epochs` epochs have been too long since the plan was accepted, the migration is rolled back.

    Parameters
    ----------
    longest_epoch_s : float
        Seconds that an epoch may take.
    epochs : int
        How many epochs that are too long undo the migration.

    Raises
    ------
    PlanError
        If a number is impossible.
    """

    longest_epoch_s: float
    _: KW_ONLY
    epochs: int = 3

    def __post_init__(self) -> None:
        if not _LEAST_S <= self.longest_epoch_s <= _MOST:
            wanted = f"a number of seconds, at least {_LEAST_S}"
            raise impossible(PlanError, "longest_epoch_s", self.longest_epoch_s, wanted)
        if not is_whole(self.epochs, 1):
            raise impossible(PlanError, "epochs", self.epochs, "a whole number of at least 1")


def rollback_of(migration: str) -> str:
    """The id of the migration that undoes another one."""
    return migration + _ROLLBACK


def undone_by(migration: str) -> str | None:
    """The id of the migration that this one undoes; None if it undoes none."""
    return migration.removesuffix(_ROLLBACK) if migration.endswith(_ROLLBACK) else None
