"""A quick life: an operator, settings, and events, all of which follow from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from chaos.life import DRAWN
from lives.events import (
    Cancel,
    Change,
    Epochs,
    Event,
    Fault,
    Look,
    Lose,
    Restart,
    RollBack,
    Rot,
    Save,
    TakeOver,
)
from lives.themes import THEMES, TURNS
from local.settings import AVRO, JOIN_4, MIN_DELTAS, ONE_EPOCH, STORE

__all__ = ["Life"]
__all__ += [
    "Cancel",
    "Change",
    "Epochs",
    "Event",
    "Fault",
    "Look",
    "Lose",
    "Restart",
    "RollBack",
    "Rot",
    "Save",
    "TakeOver",
]
BINSHIFT = STORE + "binshift."
RETAINED = "spark.sql.streaming.minBatchesToRetain"
#: Settings by name, so that a life is short to print and to shrink.
SETTINGS: dict[str, dict[str, str]] = {
    **DRAWN,
    "avro": AVRO,
    "join-4": JOIN_4,
    **{f"retained-{n}": {RETAINED: str(n)} for n in range(1, 9)},
    **{f"deltas-{n}": {MIN_DELTAS: str(n)} for n in range(1, 10)},
    # So many that an epoch touches only some of them.
    "many-bins": {BINSHIFT + "bins": "48"},
    # The sink has two actions, so the tasks of each epoch run twice, as attempts of which one counts.
    "two-actions": {},
}


@dataclass(frozen=True)
class Life:
    """A checkpoint from its first epoch to the last one; prints as what makes it again.

    It comes to its end after so many `epochs`; some of them may have run more than once.
    """

    operator: str
    partitions: int
    rows: int
    settings: tuple[str, ...]
    events: tuple[Event, ...]
    epochs: int = 20

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
    def theme_of(seed: str) -> str:
        """The name of its theme. The themes of a run take turns."""
        run, _, index = seed.rpartition("-")
        return random.Random(run).sample(TURNS, len(TURNS))[int(index) % len(TURNS)]

    @staticmethod
    def of(seed: str) -> Life:
        """Draws a life. Its seed is that of a run, a dash, and the index of the life."""
        rng, theme = random.Random(seed), THEMES[Life.theme_of(seed)]
        operator = rng.choice(theme.operators)
        settings = [name for name in DRAWN if rng.random() < theme.odds.get(name, 0.15)]
        settings += ["avro"] * (operator.startswith("tws") and rng.random() < 0.25)
        settings += ["join-4"] * (operator.startswith("join") and rng.random() < theme.odds.get("join-4", 0.3))
        settings += ["many-bins"] * (rng.random() < theme.odds.get("many-bins", 0.15))
        settings += ["two-actions"] * (rng.random() < theme.odds.get("two-actions", 0.05))
        retained = rng.choice(theme.retained)
        deltas = rng.choice(theme.deltas)
        settings += [f"retained-{retained}"] * (retained < 20) + [f"deltas-{deltas}"] * (deltas < 10)
        # First epochs that are not disturbed, since there is nothing to move before them.
        is_taken_over = rng.random() < theme.taken_over
        events: list[Event] = [Epochs(rng.randint(1, 4)), TakeOver()] if is_taken_over else [Epochs(1)]
        epochs = rng.choice(theme.epochs)
        while sum(e.n for e in events if isinstance(e, Epochs)) < epochs - 2:
            events += theme.round(rng, retained)
        partitions, rows = rng.randint(1, 4), rng.choice(theme.rows)
        return Life(operator, partitions, rows, tuple(settings), tuple(events), epochs)
