"""What happens in a life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: So many partitions, or other owners of all bins or of a few.
Target = int | Literal["owners", "few", "rebalance"]


@dataclass(frozen=True)
class Epochs:
    """The next input comes, a file an epoch."""

    n: int


@dataclass(frozen=True)
class TakeOver:
    """Spark's own provider ran all epochs before; from here on, binshift does."""


@dataclass(frozen=True)
class Change:
    """A migration is submitted, unless one is under way."""

    to: Target
    strategy: str
    prepare: bool
    chance: int = 0
    epochs: int = 0  # After so many, it is undone, if there are any.


@dataclass(frozen=True)
class Cancel:
    """The migration under way ends where it is."""


@dataclass(frozen=True)
class RollBack:
    """The migration under way is undone, or else the last one, if nothing has changed the table since."""


@dataclass(frozen=True)
class Lose:
    """All stores of the process are closed under the query, which has to recover them."""


@dataclass(frozen=True)
class Restart:
    """The query is started anew, with or without the stores that it had.

    So many of its newest epochs count as not committed (`again`, 0 or 1), as if the driver had died before,
    or were never logged at all (`back`), as if a person had wound the checkpoint back. They then get the input
    that they had, or other input (`other`), so that the content of files of their first attempt is wrong now.
    The query may have one more state variable from then on, if its operator has any (`grows`).
    """

    loses: bool = False
    again: int = 0
    back: int = 0
    other: bool = False
    grows: bool = False


@dataclass(frozen=True)
class Look:
    """The state of an epoch that the query promises to keep is read from the checkpoint, and compared."""

    chance: int


@dataclass(frozen=True)
class Rot:
    """Some of the newest snapshots are damaged for so many epochs, if older ones can replace them.

    The zip is `empty` or `cut` short, or of the files that only this snapshot has, all are `gone` or have a
    wrong `end`, without which none can be opened.
    """

    chance: int
    form: Literal["empty", "cut", "gone", "end"]
    epochs: int


@dataclass(frozen=True)
class Save:
    """A savepoint is made of an epoch that is retained, by the driver or another process.

    At the end of the life, a fork of it has the state of its epoch.
    """

    chance: int


@dataclass(frozen=True)
class Fault:
    """A point fails, or takes its time, until the next fault or the next start.

    One that `fails` does so each time, and one that is `held` lets nobody pass, both for so many epochs, even
    if the query is started anew. One that is `slow` may last as long.
    """

    point: str
    action: Literal["throw", "interrupt", "slow", "damage", "cut", "fails", "held"]
    epochs: int = 0


Event = Epochs | TakeOver | Change | Cancel | RollBack | Lose | Restart | Look | Rot | Save | Fault
