"""Negative controls: with a guard switched off, a small exploration has to find a violation.

A guard that another one makes up for is switched off together with that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model.rules import Guard, Rules
from model.sizes import LATE_NOTE, LATE_ROLLBACK, LENDING, MOVED, TWO_STEPS_PREPARED
from model.state import Budget, PerBin

AWAY = (PerBin((1, 0)),)
ONE = (PerBin((0, 0)),)
AWAY_AND_BACK = (PerBin((0, 0)), PerBin((0, 1)))
BACK = (PerBin((1, 0)), PerBin((0, 1)))
AWAY_AND_OVER = (PerBin((1, 0)), PerBin((0, 0)))


@dataclass(frozen=True)
class Control:
    off: frozenset[Guard]
    size: dict[str, Any]

    @property
    def name(self) -> str:
        return " + ".join(sorted(g.name for g in self.off))

    @property
    def rules(self) -> Rules:
        return Rules(**self.size, off=self.off)


ONE_START = Budget()


def _control(*off: Guard, budget: Budget = ONE_START, **size: Any) -> Control:
    return Control(frozenset(off), {"budget": budget, **size})


CRASH = Budget(crashes=1)
TWO = Budget(others=1)
WOUND = Budget(crashes=1, winds=1, snapshots=1, plans=0)

#: One bin has moved; somebody who has been replaced comes late.
LATE: dict[str, Any] = {
    "plans": (MOVED,),
    "first": PerBin((0,)),
    "budget": Budget(rollbacks=1),
    "cleans": False,
}

CONTROLS = [
    _control(Guard.CHAIN, budget=CRASH),
    _control(Guard.NAMED_ENTRIES, budget=Budget(others=1, plans=2), plans=(AWAY, ONE)),
    _control(Guard.DURABLE_ENTRY, budget=CRASH),
    _control(Guard.NAME_IN_LOG, budget=CRASH),
    _control(Guard.LATER_ENTRIES_STAY, budget=TWO),
    _control(Guard.ONE_COMMIT, budget=Budget(others=1, plans=0), epochs=2),
    _control(Guard.ENTRIES_FOR_FILES),
    _control(Guard.CLAIM_COUNTS, budget=Budget(starts=4), epochs=5, stops=True, cleans=False),
    _control(Guard.CLAIM_DECIDES, budget=Budget(starts=3, crashes=2), epochs=2, cleans=False),
    _control(
        Guard.EXCLUSIVE_CLAIM,
        since=TWO_STEPS_PREPARED,
        drivers=3,
        cleans=False,
        budget=Budget(others=2, plans=0),
    ),
    _control(
        Guard.NUMBERS_STAY,
        since=TWO_STEPS_PREPARED,
        drivers=3,
        cleans=False,
        budget=Budget(others=2, plans=0),
    ),
    _control(Guard.COUNT_FIRST, budget=Budget(starts=3, others=2, crashes=1, plans=0), epochs=2, cleans=False),
    _control(Guard.SECOND_LOOK, budget=Budget(starts=3, others=1, crashes=1, plans=0), epochs=2),
    _control(Guard.OLDER_THAN_EPOCH, budget=TWO, format=1),
    _control(
        Guard.SAME_FILE,
        budget=Budget(starts=3, crashes=1, others=1, plans=0, winds=1),
        format=1,
        retained=2,
        epochs=2,
    ),
    _control(Guard.LOST_FILES_GO, budget=WOUND, format=1, retained=2),
    _control(Guard.IDS_OUTLIVE_STARTS, budget=TWO),
    _control(Guard.COMMITTED_BASE, budget=WOUND, format=2, retained=2),
    _control(Guard.BASE_SINCE_ARRIVAL, budget=Budget(snapshots=1), plans=(BACK,), epochs=5),
    _control(Guard.SAME_VERSION, plans=(AWAY_AND_BACK,), epochs=5),
    _control(Guard.COMMITTED_INSTANCE, budget=Budget(attempts=1)),
    _control(Guard.COPY_FOLLOWS, budget=Budget(copies=1), epochs=4),
    _control(
        Guard.SWEPT_BEFORE_RETURN,
        **LENDING,
    ),
    _control(
        Guard.SWEPT_BEFORE_SNAPSHOT,
        **LENDING,
        budget=Budget(starts=1, losses=1, snapshots=1),
    ),
    _control(Guard.CHECK_BEFORE_UPLOAD, budget=WOUND, format=1, retained=2),
    _control(Guard.UPLOAD_BY_RECORD, budget=WOUND, format=1, retained=2),
    _control(Guard.RETENTION),
    _control(Guard.RETAIN_COMMITTED, budget=Budget(attempts=1, snapshots=1, plans=0)),
    _control(Guard.RETAIN_ALL, budget=Budget(snapshots=1, plans=0), retained=2),
    _control(Guard.CLEAN_SAME_FILE, budget=WOUND, format=1, retained=2),
    _control(Guard.KEEP_UNCOMMITTED, budget=Budget(plans=0)),
    _control(Guard.SAVEPOINT_OF_RETAINED, budget=Budget(starts=1, snapshots=1, plans=0, savepoints=1)),
    _control(Guard.SAVEPOINT_KEEPS_ALL, budget=Budget(starts=1, snapshots=1, plans=0, savepoints=1)),
    _control(Guard.SAVEPOINT_AFTER_DECISION, budget=Budget(starts=1, snapshots=1, plans=0, savepoints=1)),
    _control(
        Guard.SAVEPOINT_STOPS_START,
        budget=Budget(crashes=1, winds=1, plans=0, savepoints=1),
        format=1,
        retained=2,
    ),
    _control(Guard.SOURCES_CHECKED, budget=Budget(starts=1, deletions=1), adopts_from_files=True),
    _control(Guard.OWN_PLAN, budget=Budget(others=1, plans=2), epochs=4),
    _control(
        Guard.ROLLBACK_FIRST,
        plans=(AWAY_AND_OVER,),
        budget=Budget(crashes=1, rollbacks=1),
        epochs=5,
        cleans=False,
    ),
    _control(
        Guard.ROLLBACK_WAITS,
        plans=(AWAY_AND_OVER,),
        budget=Budget(others=1, rollbacks=1),
        epochs=5,
        cleans=False,
    ),
    _control(Guard.ROLLBACK_KNOWS_STEPS, **LATE, since=LATE_NOTE, epochs=6),
    _control(Guard.ROLLBACK_KNOWS_ENTRY, **LATE, since=LATE_ROLLBACK, epochs=7),
]

ENDLESS = [
    _control(Guard.PLAN_OUTLIVES_RUN, budget=CRASH, epochs=6, stops=True, cleans=False),
    _control(
        Guard.SNAPSHOT_ASKED,
        first=PerBin((0,)),
        plans=((PerBin((1,)),),),
        budget=Budget(deletions=1),
        epochs=7,
        cleans=False,
        adopts_from_files=True,
    ),
]
"""Guards without which some migration never ends."""

NO_PLACE = (Guard.EXCLUSIVE_CLAIM, Guard.COUNT_FIRST)
BY_LISTING = (Guard.CHAIN, Guard.NAMED_ENTRIES)
BEFORE = {
    "a start deletes what another driver's tasks have written since": _control(
        *NO_PLACE, Guard.IDS_OUTLIVE_STARTS, Guard.OLDER_THAN_EPOCH, Guard.SAME_FILE, budget=TWO
    ),
    "recoveries obey an entry that no epoch was run under": _control(*NO_PLACE, *BY_LISTING, budget=TWO),
    "a driver deletes the entry that is in force for the other one": _control(
        *NO_PLACE, Guard.NAMED_ENTRIES, Guard.LATER_ENTRIES_STAY, budget=TWO
    ),
    "a start of a wound back checkpoint deletes what another driver has made": _control(
        *NO_PLACE,
        Guard.SAME_FILE,
        format=1,
        retained=2,
        epochs=2,
        budget=Budget(starts=3, crashes=1, others=1, plans=0, winds=1),
    ),
    "a cleanup takes the snapshot of an epoch that was never committed for a base": _control(
        Guard.RETAIN_COMMITTED, budget=Budget(crashes=1, snapshots=1)
    ),
}
"""Faults of the protocol before drivers were fenced, and before retention went by what a recovery reads."""

WINDOWS = {
    "an upload is frozen while the logs are wound back": _control(
        format=1, retained=2, budget=WOUND, winds_while_uploading=True
    ),
    "a driver is frozen while the logs are wound back": _control(
        retained=2, budget=Budget(winds=1, plans=0), winds_while_alive=True
    ),
}
"""Mishaps against which neither the protocol nor Spark's own provider guards while a query is wound back."""
