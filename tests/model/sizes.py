"""The sizes that are explored: small ones in each run of the tests, and all by `make model`."""

from __future__ import annotations

from typing import Any

from model.recovery import ANY_RUN
from model.rules import Rules
from model.state import Budget, Changelog, Checkpoint, Claim, Driver, Entry, Name, Offset, PerBin, Plan, State

SWAP = (PerBin((1, 0)),)
OUT_AND_BACK = (PerBin((0, 1)), PerBin((0, 0)))
ONE_PARTITION = PerBin((0, 0))
UNITED_AND_BACK = (PerBin((0, 0)), PerBin((0, 1)))


def _two_steps_prepared() -> State:
    """Epoch 0 is committed, and two runs have prepared a step for epoch 1. A third has not heard of it yet."""
    first = Name(0, ANY_RUN, PerBin((0, 1)))
    steps = [Entry(Name(1, run, PerBin((1, 0))), first, (0, 0)) for run in (0, 1)]
    changes = [Changelog(p, 1, (0, 0), 0, PerBin((p == 0, p == 1)), 0) for p in (0, 1)]
    files = Checkpoint(
        offsets=(Offset(0, None, None, 2),),
        commits=(((0, 0), (0, 0)),),
        claims=(Claim(1, 0, 0, 0, first, 0),),
        entries=frozenset([Entry(first, None, None), *steps]),
        changelogs=frozenset(changes),
        snapshots=frozenset(),
        plans=(),
        winds=0,
        oldest=1,
    )
    late = Driver(2, "claim", 0, record=0, entry=first, claimed=1, stores=(None, None))
    return State(files, frozenset(), frozenset(), (late,), 3, 1, Budget())


TWO_STEPS_PREPARED = _two_steps_prepared()

MOVED = (PerBin((1,)),)


def _moved_to(*owners: int) -> Checkpoint:
    """One bin had these owners, one in each epoch; each change was a migration, or its rollback (-1 - n)."""
    name, entries, offsets, commits = Name(0, ANY_RUN, PerBin((owners[0],))), [], [], []
    entries.append(Entry(name, None, None))
    changes, partitions = [], 1 + max(owners)
    for epoch, owner in enumerate(owners):
        if owner != name.table[0]:
            before, name = name, Name(epoch, 1, PerBin((owner,)))
            migration = (epoch - 1) // 2 if epoch % 2 else -1 - (epoch - 2) // 2
            entries.append(Entry(name, before, (migration, 0)))
        offsets.append(Offset(0, 1 if epoch else None, name if epoch else None, partitions))
        commits.append(((1, 0),) * partitions)
        changes += [Changelog(p, epoch + 1, (1, 0), 0, PerBin((p == owner,)), 0) for p in range(partitions)]
    first = entries[0].name
    return Checkpoint(
        offsets=tuple(offsets),
        commits=tuple(commits),
        claims=(Claim(1, 0, 0, 0, first, 0), Claim(2, 1, 0, 0, first, 0)),
        entries=frozenset(entries),
        changelogs=frozenset(changes),
        snapshots=frozenset(),
        plans=(),
        winds=0,
        oldest=1,
    )


def _late_note() -> State:
    """A run is about to note that its migration is to be undone, but another one has finished that since."""
    files = _moved_to(0, 1)._replace(finished=frozenset([0]))
    plan = Plan(0, MOVED, PerBin((0,)), stopped_after=0)
    first = Name(0, ANY_RUN, PerBin((0,)))
    late = Driver(0, "note", 0, record=0, entry=first, claimed=1, stores=(None, None), plan=plan)
    return State(files, frozenset(), frozenset(), (late,), 2, 1, Budget(starts=1, others=1))


def _late_rollback() -> State:
    """A run has written the plan of a rollback late: it was carried out, and the bin was moved again."""
    files = _moved_to(0, 1, 0, 1)
    step = Name(1, 1, PerBin((1,)))
    plan = Plan(-1, (PerBin((0,)),), step.table, begins_at=step)
    return State(files._replace(plans=(plan,)), frozenset(), frozenset(), (), 2, 2, Budget(starts=1))


LATE_NOTE = _late_note()
LATE_ROLLBACK = _late_rollback()

LENT = (PerBin((0, 1, 1)), PerBin((0, 0, 1)))
"""A bin leaves a store that keeps another one, and comes back."""
LENDING: dict[str, Any] = {
    "first": PerBin((0, 0, 1)),
    "plans": (LENT,),
    "epochs": 5,
    "leaves_rows": True,
    "cleans": False,
}

SMALL = {
    "three drivers, two steps prepared": Rules(
        since=TWO_STEPS_PREPARED, drivers=3, cleans=False, budget=Budget(others=2, plans=0)
    ),
    "format 2, a crash": Rules(budget=Budget(crashes=1, losses=1)),
    "format 1, a crash": Rules(format=1, budget=Budget(crashes=1, losses=1)),
    "format 2, two drivers": Rules(epochs=2, budget=Budget(others=1)),
    "format 1, two drivers": Rules(format=1, epochs=2, budget=Budget(others=1, snapshots=1)),
    "format 2, twins and snapshots": Rules(epochs=2, budget=Budget(starts=1, attempts=1, snapshots=2)),
    "format 2, wound back": Rules(
        retained=2, epochs=2, budget=Budget(crashes=1, snapshots=1, winds=1, plans=0)
    ),
    "format 1, wound back": Rules(
        format=1, retained=2, epochs=2, budget=Budget(crashes=1, snapshots=1, winds=1, plans=0)
    ),
    "out and back again": Rules(
        first=ONE_PARTITION, plans=(OUT_AND_BACK,), epochs=4, budget=Budget(starts=1, snapshots=1)
    ),
    "a bin that comes back to a store with its rows": Rules(
        **LENDING, budget=Budget(starts=1, losses=1, snapshots=1)
    ),
    "copies": Rules(epochs=4, budget=Budget(starts=1, losses=1, copies=1)),
    "real-time mode, two drivers": Rules(real_time=True, epochs=2, budget=Budget(others=1)),
    "format 2, a file deleted by hand": Rules(
        epochs=4, adopts_from_files=True, budget=Budget(starts=1, deletions=1)
    ),
    "a rollback, a crash": Rules(
        first=ONE_PARTITION,
        plans=(OUT_AND_BACK[:1],),
        epochs=5,
        cleans=False,
        budget=Budget(crashes=1, rollbacks=1),
    ),
    "format 2, a savepoint": Rules(budget=Budget(starts=1, snapshots=1, savepoints=1)),
    "format 2, a savepoint of an older epoch": Rules(
        retained=2, budget=Budget(starts=1, snapshots=1, plans=0, savepoints=1)
    ),
    "an epoch for each run": Rules(epochs=5, stops=True, remembered=1, budget=Budget(starts=5)),
}

LARGE = {
    "format 2, two drivers, two epochs, snapshots": Rules(epochs=2, budget=Budget(others=1, snapshots=1)),
    "format 2, two drivers, three epochs": Rules(budget=Budget(others=1, snapshots=1)),
    "format 1, two drivers, three epochs": Rules(format=1, budget=Budget(others=1, snapshots=1)),
    "format 2, two drivers, executors lost, a crash": Rules(
        cleans=False, budget=Budget(starts=3, others=1, crashes=1, losses=1)
    ),
    "format 1, two drivers, executors lost, a crash": Rules(
        format=1, cleans=False, budget=Budget(starts=3, others=1, crashes=1, losses=1)
    ),
    "format 2, twins, snapshots, a crash": Rules(budget=Budget(attempts=1, snapshots=1, crashes=1)),
    "format 2, two versions retained, snapshots": Rules(
        retained=2, budget=Budget(starts=1, snapshots=3, losses=1)
    ),
    "format 1, wound back, two drivers": Rules(
        format=1,
        epochs=2,
        retained=2,
        budget=Budget(starts=3, others=1, crashes=1, winds=1, snapshots=1, plans=0),
    ),
    "format 2, wound back, two drivers": Rules(
        epochs=2, retained=2, budget=Budget(starts=3, others=1, crashes=1, winds=1, snapshots=1, plans=0)
    ),
    "format 2, wound back twice, two drivers": Rules(
        epochs=2, retained=2, budget=Budget(starts=3, others=1, crashes=1, winds=2, snapshots=1, plans=0)
    ),
    "format 2, wound back, a step": Rules(retained=2, budget=Budget(crashes=1, winds=1, snapshots=1)),
    "format 1, wound back, a step": Rules(format=1, retained=2, budget=Budget(crashes=1, winds=1, snapshots=1)),
    "a partition that leaves and comes back": Rules(
        plans=(UNITED_AND_BACK,), epochs=5, budget=Budget(starts=1, snapshots=2)
    ),
    "three bins, three partitions": Rules(
        first=PerBin((0, 0, 1)),
        partitions=3,
        plans=((PerBin((2, 2, 1)), PerBin((2, 2, 0))),),
        epochs=4,
        budget=Budget(starts=2, crashes=1, snapshots=1),
    ),
    "two drivers, two plans, cancels": Rules(
        epochs=4, cleans=False, plans=(SWAP, UNITED_AND_BACK[:1]), budget=Budget(others=1, plans=2, cancels=1)
    ),
    "real-time mode, two drivers, a crash": Rules(
        real_time=True, budget=Budget(starts=3, others=1, crashes=1, losses=1)
    ),
    "claims that are forgotten": Rules(epochs=3, remembered=1, stops=True, budget=Budget(starts=4, others=1)),
    "three drivers, one after the other": Rules(cleans=False, budget=Budget(starts=4, others=2, crashes=1)),
    "format 1, a file deleted by hand": Rules(
        format=1, epochs=4, adopts_from_files=True, budget=Budget(starts=1, deletions=1)
    ),
    "a rollback, two drivers": Rules(
        first=ONE_PARTITION,
        plans=(OUT_AND_BACK,),
        epochs=5,
        cleans=False,
        budget=Budget(others=1, rollbacks=1),
    ),
    "format 1, a savepoint, wound back": Rules(
        format=1, epochs=2, retained=2, budget=Budget(crashes=1, winds=1, snapshots=1, plans=0, savepoints=1)
    ),
    "format 2, a savepoint of an older epoch, wound back": Rules(
        epochs=3, retained=2, budget=Budget(crashes=1, winds=1, snapshots=1, plans=0, savepoints=1)
    ),
    "format 2, a savepoint, two drivers": Rules(epochs=2, budget=Budget(others=1, snapshots=1, savepoints=1)),
    "copies, two drivers": Rules(
        epochs=4, cleans=False, budget=Budget(others=1, losses=1, copies=1, snapshots=0)
    ),
}

LONG_LIVES = {
    f"format {format}, {retained} retained": Rules(
        format=format,
        retained=retained,
        epochs=5,
        leaves_rows=True,
        plans=(SWAP, UNITED_AND_BACK),
        budget=Budget(5, others=2, plans=2, cancels=1, crashes=2, losses=2, attempts=2, snapshots=4, winds=1),
    )
    for format in (1, 2)
    for retained in (1, 2)
} | {
    "real-time mode": Rules(
        real_time=True,
        epochs=5,
        leaves_rows=True,
        plans=(SWAP, UNITED_AND_BACK),
        budget=Budget(5, others=2, plans=2, cancels=1, crashes=2, losses=2, attempts=2, snapshots=4),
    )
}
"""Too large for anything but random walks: everything happens, and more than once."""

LIVE = {
    "a crash": Rules(epochs=6, stops=True, cleans=False, budget=Budget(crashes=1)),
    "two drivers": Rules(epochs=4, stops=True, cleans=False, budget=Budget(starts=3, others=1)),
    "a rollback": Rules(
        first=ONE_PARTITION,
        plans=(OUT_AND_BACK[:1],),
        epochs=8,
        stops=True,
        cleans=False,
        budget=Budget(crashes=1, rollbacks=1),
    ),
    "two plans": Rules(epochs=7, stops=True, cleans=False, budget=Budget(plans=2)),
    "a file deleted by hand": Rules(
        first=PerBin((0,)),
        plans=((PerBin((1,)),),),
        epochs=7,
        adopts_from_files=True,
        cleans=False,
        budget=Budget(deletions=1),
    ),
}
"""Sizes for which it is asked whether each migration ends."""
