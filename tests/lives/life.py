"""A quick life: an operator, settings, and events, all of which follow from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from chaos.life import DRAWN, OPERATORS
from local.settings import AVRO, JOIN_4, MIN_DELTAS, ONE_EPOCH, STORE

BINSHIFT = STORE + "binshift."
RETAINED = "spark.sql.streaming.minBatchesToRetain"
#: Each life comes to its end after so many epochs; some of them may have run more than once.
EPOCHS = 20
#: Settings by name, so that a life is short to print and to shrink.
SETTINGS: dict[str, dict[str, str]] = {
    **DRAWN,
    "avro": AVRO,
    "join-4": JOIN_4,
    **{f"retained-{n}": {RETAINED: str(n)} for n in range(1, 9)},
    **{f"deltas-{n}": {MIN_DELTAS: str(n)} for n in range(1, 6)},
}
#: Operators that are quick enough for changelogs which a recovery holds in a file and not in memory.
LARGE = ("count", "tumbling-append")
#: How often a life has a setting, where that is not a quarter: most faults of retention need a cleanup.
ODDS = {"eager-cleanup": 0.5, "format-2": 0.4}
#: Points of `Faults.scala` that a life passes outside of the driver's part in a start.
POINTS = (
    "export.begin",
    "export.start",
    "export.chunk",
    "export.link",
    "export.scan",
    "stage.file",
    "stage.done",
    "changelog.read",
    "changelog.change",
    "checkpoint.read",
    "checkpoint.changes",
    "families.read",
    "checkpoint.file",
    "recovery.file",
    "replay.quick",
    "rows.request",
    "rows.ask",
    "rows.answer",
    "rows.add",
    "rows.overlay",
    "split.begin",
    "split.link",
    "split.done",
    "switch.ingest",
    "switch.changes",
    "switch.flush",
    "switch.done",
    "sweep",
    "snapshot.check",
    "snapshot.upload",
    "versions.deleted",
    "retired.delete",
    "retired.file",
)
DAMAGED = ("export.chunk", "rows.answer")
STRATEGIES = ("AllAtOnce", "Fluid", "Batched", "OnDemand")


@dataclass(frozen=True)
class Epochs:
    """The next input comes, a file an epoch."""

    n: int


@dataclass(frozen=True)
class Change:
    """A migration is submitted, unless one is under way: to so many partitions, or to owners by chance."""

    to: int | Literal["owners", "rebalance"]
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
    """

    loses: bool = False
    again: int = 0
    back: int = 0
    other: bool = False


@dataclass(frozen=True)
class Look:
    """The state of an epoch that the query promises to keep is read from the checkpoint, and compared."""

    chance: int


@dataclass(frozen=True)
class Fault:
    """A point fails, or takes its time, until the next fault or the next start."""

    point: str
    action: Literal["throw", "interrupt", "slow", "damage", "cut"]


Event = Epochs | Change | Cancel | RollBack | Lose | Restart | Look | Fault


@dataclass(frozen=True)
class Life:
    """A checkpoint from its first epoch to the last one; prints as what makes it again."""

    operator: str
    partitions: int
    rows: int
    settings: tuple[str, ...]
    events: tuple[Event, ...]

    @property
    def conf(self) -> dict[str, str]:
        conf = {
            **ONE_EPOCH,
            "spark.sql.shuffle.partitions": str(self.partitions),
            BINSHIFT + "bins": "12",
            BINSHIFT + "ship.timeout": "5s",
        }
        for name in self.settings:
            conf |= SETTINGS[name]
        return conf

    @property
    def retained(self) -> int:
        """How many versions the query promises to keep."""
        return int(self.conf.get(RETAINED, "20"))

    @staticmethod
    def of(seed: str) -> Life:
        """Draws a life."""
        rng = random.Random(seed)
        operator = rng.choice(OPERATORS)
        settings = [name for name in DRAWN if rng.random() < ODDS.get(name, 0.25)]
        settings += ["avro"] * (operator.startswith("tws") and rng.random() < 0.25)
        settings += ["join-4"] * (operator.startswith("join") and rng.random() < 0.25)
        settings += [f"retained-{rng.randint(1, 8)}"] * (rng.random() < 0.5)
        settings += [f"deltas-{rng.randint(1, 5)}"] * (rng.random() < 0.7)
        retained = next((int(s.split("-")[1]) for s in settings if s.startswith("retained")), 20)
        # A first epoch that is not disturbed, since there is nothing to move before it.
        events: list[Event] = [Epochs(1)]
        for _ in range(rng.randint(6, 16)):
            events.append(_event(rng, retained))
        return Life(
            operator,
            rng.randint(1, 4),
            rng.choice([20, 40, 40, 40, 300, 1500, *([20_000] if operator in LARGE else [])]),
            tuple(settings),
            tuple(events),
        )


def _event(rng: random.Random, retained: int) -> Event:
    draws: list[tuple[int, Callable[[], Event]]] = [
        (8, lambda: Epochs(rng.randint(1, 4))),
        (7, lambda: _change(rng)),
        (1, Cancel),
        (2, RollBack),
        (2, Lose),
        (3, lambda: _restart(rng, retained)),
        (3, lambda: Look(rng.randrange(1000))),
        (3, lambda: _fault(rng)),
    ]
    return rng.choices([draw for _, draw in draws], [weight for weight, _ in draws])[0]()


def _change(rng: random.Random) -> Change:
    strategy = rng.choice(STRATEGIES)
    to = rng.choice([*range(1, 7), "owners", "owners", "rebalance"])
    epochs = rng.choice([0, 0, 0, *range(2, 7)])
    return Change(to, strategy, strategy == "OnDemand" or rng.random() < 0.5, rng.randrange(1000), epochs)


def _restart(rng: random.Random, retained: int) -> Restart:
    form, loses = rng.random(), rng.random() < 0.7
    if form < 0.3:
        return Restart(loses, again=1)
    if form < 0.7 and retained > 1:
        return Restart(loses, back=rng.randint(1, min(3, retained - 1)), other=rng.random() < 0.6)
    return Restart(loses)


def _fault(rng: random.Random) -> Fault:
    if rng.random() < 0.15:
        return Fault(rng.choice(DAMAGED), rng.choice(["damage", "cut"]))
    return Fault(rng.choice(POINTS), rng.choice(["throw", "throw", "interrupt", "slow"]))
