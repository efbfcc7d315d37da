"""What lives are about.

A life that draws a little of everything seldom has the few events together that show a fault. So each life has
a theme, which says how often it has which operators, settings and events. The last theme is a little of
everything.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from chaos.life import OPERATORS
from lives.events import Cancel, Change, Epochs, Event, Fault, Look, Lose, Restart, RollBack, Rot, Save, Target

#: Has the most kinds of state: values, lists that grow by merges, maps and timers.
MOST_KINDS = "tws-jvm"
#: Operators that forget rows in most epochs.
FORGETTING = ("tumbling-append", "session-fixed", "dedup-watermark", "join-inner", *[MOST_KINDS] * 3)
#: Operators with families that are read in order, for joins only in state format 4.
ORDERED = ("join-inner", "join-full", *[MOST_KINDS] * 2)
#: Operators that start no Python processes, which take most of an epoch's time.
QUICK = (*(o for o in OPERATORS if o not in ("pandas-with-state", "tws-rows")), *[MOST_KINDS] * 2)
#: Deletes values, lists and entries of maps when it gets rows, and looks all of them up by key.
DELETES_BY_KEY = "tws-remembering"
#: Mostly operators that look up state by the keys of their rows, so that rows come on demand.
BY_KEY = (*["count", "dedup-watermark", "join-inner"] * 2, *[DELETES_BY_KEY] * 3)
#: Operators that scan their state in each epoch, and wait for all bins there.
SCANNING = ("jvm-with-state", "tumbling-append", "session-fixed", MOST_KINDS)
#: Operators that are quick with many rows, and get new ones in each epoch.
LARGE = ("tumbling-append", "dedup-watermark")
#: Points of `Faults.scala` that a life passes outside of the driver's part in a start, by what is done there.
COPYING = (
    "export.begin",
    "export.start",
    "export.chunk",
    "export.link",
    "export.scan",
    "stage.file",
    "stage.done",
    "changelog.read",
    "changelog.change",
    "split.begin",
    "split.begun",
    "split.link",
    "split.done",
)
RECOVERING = (
    "checkpoint.read",
    "checkpoint.changes",
    "families.read",
    "checkpoint.file",
    "recovery.file",
    "replay.quick",
    "rows.count",
)
ON_DEMAND = ("rows.request", "rows.ask", "rows.answer", "rows.push", "rows.poll", "rows.add", "rows.overlay")
SWITCHING = (
    "switch.ingest",
    "switch.changes",
    "switch.flush",
    "switch.sweep",
    "switch.scan",
    "switch.done",
    "sweep",
)
KEEPING = ("snapshot.check", "snapshot.upload", "versions.deleted", "retired.delete", "retired.file")
POINTS = COPYING + RECOVERING + ON_DEMAND + SWITCHING + KEEPING
DAMAGED = ("export.chunk", "rows.answer")
#: Work in the background that may be held up for some epochs.
HELD = ("export.start", "export.scan", "stage.done", "changelog.read", "sweep")
#: A task fails while its operator works, or after its store was committed, and is tried again.
TASKS = ("query.row", "store.committed")
#: Uploads of single partitions, so that the others have snapshots when these have none.
UPLOADS = tuple(f"snapshot.upload.{p}" for p in range(4))
#: Work in the background that may fail for some epochs.
FAILING = (
    *UPLOADS,
    "snapshot.upload",
    "snapshot.check",
    "versions.deleted",
    "export.begin",
    "stage.file",
    "sweep",
)
#: Where migrations go to: so many partitions, or other owners of the bins.
OWNERS: tuple[Target, ...] = ("owners", "few")
TARGETS: tuple[Target, ...] = (*range(1, 7), *OWNERS * 4, "rebalance")


@dataclass(frozen=True)
class Theme:
    """How often a life has what.

    `odds` are those of settings, if they aren't the usual ones. A life is a sequence of rounds: a migration, an
    epoch or more, and one or two of the `events`, by their weights; then maybe another epoch. So many rounds
    have `changes`, which means a migration to one of the `targets`, and so many of these are prepared. Faults
    are at the `points`; some of them are `held` or slow for a while, or `fail`. So many lives are `taken_over`
    from Spark's own provider after their first epochs.
    """

    operators: tuple[str, ...] = QUICK
    odds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    rows: tuple[int, ...] = (20, 40, 40, 40, 300)
    deltas: tuple[int, ...] = (1, 2, 3, 4, 5, 10, 10)
    retained: tuple[int, ...] = (*range(1, 9), *[20] * 8)
    epochs: tuple[int, ...] = (20,)
    taken_over: float = 0.15
    strategies: tuple[str, ...] = ("AllAtOnce", "AllAtOnce", "Fluid", "Batched", "OnDemand")
    targets: tuple[Target, ...] = TARGETS
    changes: float = 0.9
    prepared: float = 0.5
    events: Mapping[str, int] = field(
        default_factory=lambda: MappingProxyType(
            {"cancel": 1, "undo": 2, "lose": 2, "restart": 3, "rot": 1, "look": 2, "save": 2}
            | {"fault": 4, "task": 2, "nothing": 4}
        )
    )
    points: tuple[str, ...] = POINTS
    held: tuple[str, ...] = HELD
    failing: tuple[str, ...] = FAILING

    def round(self, rng: random.Random, retained: int) -> list[Event]:
        """A migration and what happens around it: faults before it, all else after an epoch or more."""
        events: list[Event] = [self._change(rng)] if rng.random() < self.changes else []
        events.append(Epochs(rng.choice([1, 1, 2, 3])))
        for kind in rng.choices(list(self.events), list(self.events.values()), k=rng.choice([1, 1, 2])):
            match kind:
                case "fault":
                    events.insert(0, self._fault(rng))
                case "task":
                    failing = Fault(rng.choice(TASKS), rng.choice(["throw", "throw", "interrupt"]))
                    # After the commit of which copies are made, or while bins are on their way.
                    events.insert(0 if failing.point == "store.committed" else len(events), failing)
                case "damage":
                    events.insert(0, Fault("checkpoint.file", "damage"))
                case "cancel":
                    events.append(Cancel())
                case "undo":
                    events += [RollBack(), Epochs(rng.choice([1, 1, 2]))]
                case "lose":
                    events.append(Lose())
                case "restart":
                    events.append(_restart(rng, retained))
                case "remade" if retained > 1:
                    events += _remade(rng, retained)
                case "late" if retained > 1:
                    events += _late(rng, retained)
                case "rot":
                    events += _rotten(rng)
                case "save" | "look":
                    events.append((Save if kind == "save" else Look)(rng.randrange(1000)))
        return events + [Epochs(1)] * (rng.random() < 0.5)

    def _change(self, rng: random.Random) -> Change:
        strategy = rng.choice(self.strategies)
        to = rng.choice(self.targets)
        epochs = rng.choice([0, 0, 0, 0, *range(2, 7)])
        is_prepared = strategy == "OnDemand" or rng.random() < self.prepared
        return Change(to, strategy, is_prepared, rng.randrange(1000), epochs)

    def _fault(self, rng: random.Random) -> Fault:
        form = rng.random()
        if form < 0.1:
            return Fault(rng.choice(DAMAGED), rng.choice(["damage", "cut"]))
        if form < 0.4 and self.held:
            return Fault(rng.choice(self.held), rng.choice(["held", "held", "slow"]), rng.randint(2, 6))
        if form < 0.7 and self.failing:
            point = rng.choice(self.failing)
            return Fault(point, "fails", rng.randint(2, 16 if point in UPLOADS else 8))
        return Fault(rng.choice(self.points), rng.choice(["throw", "throw", "interrupt", "slow"]))


def _remade(rng: random.Random, retained: int) -> list[Event]:
    """Epochs run again with other input, have no snapshots then, unlike before, and are recovered."""
    back = min(rng.choice([1, 1, 2, 3]), retained - 1)
    return [
        # Meanwhile, the snapshots of the newest epochs are uploaded.
        Look(rng.randrange(1000)),
        Fault("snapshot.upload", "fails", rng.randint(2, 4)),
        Restart(loses=True, back=back, other=True),
        *[Change(rng.choice(TARGETS), "AllAtOnce", False, rng.randrange(1000))] * (rng.random() < 0.4),
        Epochs(back + rng.choice([0, 0, 1])),
        *[Save(1)] * (rng.random() < 0.4),
        Lose(),
        Epochs(1),
        Look(0),
    ]


def _late(rng: random.Random, retained: int) -> list[Event]:
    """An upload is held up until its epoch has run again with other input, in the next run."""
    back = rng.randint(1, min(3, retained - 1))
    return [
        Look(rng.randrange(1000)),
        Fault(rng.choice(["snapshot.check", *(f"snapshot.check.{p}" for p in range(2))]), "held", back + 1),
        Epochs(back),
        Restart(loses=False, back=back, other=True),
        # With the last of these, it goes on.
        Epochs(back + 1),
        *[Look(n) for n in range(3)],
        Lose(),
        Epochs(1),
    ]


def _rotten(rng: random.Random) -> list[Event]:
    """Snapshots are damaged, bins move away from them, and recoveries and cleanups do without them."""
    form: Any = rng.choice(["empty", "cut", "gone", "end"])
    # So that the new owners of bins have none either.
    fails = Fault(rng.choice(["snapshot.upload", *UPLOADS]), "fails", rng.randint(3, 6))
    moves: list[Event] = [fails, Change(rng.choice(TARGETS), "AllAtOnce", False, rng.randrange(1000))]
    return [
        *(moves if rng.random() < 0.7 else []),
        Rot(rng.randrange(1000), form, 3 if form == "end" else rng.randint(3, 8)),
        Epochs(2 if form == "end" else rng.randint(1, 4)),
        Lose(),
        Epochs(1),
        Look(rng.randrange(1000)),
    ]


def _restart(rng: random.Random, retained: int) -> Restart:
    form, loses, grows = rng.random(), rng.random() < 0.7, rng.random() < 0.3
    if form < 0.3:
        return Restart(loses, again=1, grows=grows)
    if form < 0.7 and retained > 1:
        back = rng.randint(1, min(3, retained - 1))
        return Restart(loses, back=back, other=rng.random() < 0.4, grows=grows)
    return Restart(loses, grows=grows)


#: Bins move often, mostly not prepared, so that what they had is read from many files of many partitions.
WAYS = Theme(
    odds={"no-changelog": 0.0, "eager-cleanup": 0.2},
    # Snapshots are rare, so that a bin may come back to a partition that has made none since it left.
    deltas=(5, 10, 10, 10),
    strategies=("AllAtOnce", "AllAtOnce", "AllAtOnce", "Batched", "OnDemand"),
    prepared=0.1,
    events={"undo": 8, "lose": 6, "restart": 3, "look": 5, "fault": 8, "rot": 6},
    points=RECOVERING,
    held=(),
    failing=(*UPLOADS, "snapshot.upload"),
)
#: Rows of bins that have left stay among those of others, and bins come back before these are swept.
SWEEPS = Theme(
    operators=ORDERED,
    odds={"no-changelog": 0.0, "join-4": 1.0, "split": 0.6, "eager-cleanup": 0.1},
    deltas=(2, 3, 5, 10),
    strategies=("AllAtOnce", "AllAtOnce", "AllAtOnce", "Batched", "OnDemand"),
    prepared=0.5,
    events={"undo": 5, "lose": 1, "restart": 1, "look": 1, "fault": 8},
    points=SWITCHING,
    held=("sweep",),
    failing=("sweep",),
)
#: Copies are under way for some epochs, while rows are changed and forgotten.
COPIES = Theme(
    operators=FORGETTING,
    odds={"no-changelog": 0.0, "small-chunks": 0.3, "split": 0.3, "format-2": 0.5},
    strategies=("AllAtOnce", "AllAtOnce", "Batched", "OnDemand"),
    prepared=1.0,
    events={"cancel": 1, "undo": 2, "lose": 1, "restart": 3, "fault": 5, "task": 6, "nothing": 1},
    points=COPYING,
    held=("export.start", "export.scan", "stage.done", "changelog.read"),
    failing=("export.begin", "stage.file"),
)
#: So many rows that changelogs are replayed without Spark, and held in files.
LARGE_STATE = Theme(
    operators=LARGE,
    odds={"no-changelog": 0.0, "no-row-count": 0.0, "checksums": 0.05},
    rows=(1500, 3000, 8000),
    deltas=(5, 10, 10),
    strategies=("AllAtOnce", "AllAtOnce", "Batched"),
    # A replay along ways is Spark's and not quick.
    changes=0.4,
    events={"undo": 1, "lose": 8, "restart": 3, "look": 1},
)
#: Epochs run again, tasks are tried again, and files of attempts that don't count are left.
ATTEMPTS = Theme(
    odds={"format-2": 0.5, "eager-cleanup": 0.8, "no-changelog": 0.05, "two-actions": 0.4},
    deltas=(1, 2, 2, 3, 4, 5),
    retained=(2, 3, 4, 5, 20),
    strategies=("AllAtOnce", "AllAtOnce", "Batched", "OnDemand"),
    events={"restart": 4, "remade": 6, "late": 4, "lose": 1, "look": 1, "fault": 4, "task": 4},
    points=(
        "switch.done",
        "switch.ingest",
        "switch.changes",
        "switch.flush",
        "export.begin",
        "rows.add",
        "checkpoint.read",
    ),
    held=("snapshot.check",),
    failing=("snapshot.upload",),
)
#: Bins and rows come on demand, late. An epoch touches only some of the bins, so that others come later.
DEMAND = Theme(
    operators=(*BY_KEY, *SCANNING),
    odds={"no-changelog": 0.05, "unload-on-commit": 0.05, "many-bins": 0.7, "small-chunks": 0.4},
    # If there are no others, snapshots have to wait until all bins are here.
    deltas=(1, 1, 2, 3, 5, 10),
    strategies=("OnDemand",),
    events={"cancel": 1, "undo": 2, "lose": 3, "restart": 1, "look": 3, "fault": 6, "task": 7},
    points=(*ON_DEMAND, "export.chunk", "export.scan", "stage.file", "switch.ingest"),
    held=("export.start", "export.scan", "export.chunk"),
    failing=("rows.ask", "stage.file"),
)
#: New partitions begin with all files of old ones, or of their snapshots if these offer none.
FILES = Theme(
    operators=(*ORDERED, *ORDERED, "tumbling-append", "session-fixed"),
    odds={"split": 1.0, "no-changelog": 0.05, "unload-on-commit": 0.05, "no-row-count": 0.0}
    | {"join-4": 1.0, "many-bins": 0.5},
    deltas=(2, 3, 5, 10, 10),
    # An older snapshot replaces one that can't be read.
    retained=(20,),
    taken_over=0.0,
    # A partition that begins with bins numbers its families in another order than one that is opened.
    strategies=("AllAtOnce", "AllAtOnce", "Batched"),
    targets=(1, 2, 3, 4, 5, 6, 6, "owners"),
    changes=1.0,
    prepared=0.05,
    events={"undo": 3, "lose": 6, "restart": 1, "look": 3, "fault": 6, "task": 1, "damage": 3},
    points=("split.begin", "split.begun", "split.link", "split.done", "checkpoint.read", "checkpoint.file"),
    held=(),
    failing=("export.begin", "split.link", "split.link"),
)
#: Little is retained, and partitions come and go, so that many files are deleted.
CLEANUPS = Theme(
    operators=(*QUICK, *ORDERED, *ORDERED),
    odds={"eager-cleanup": 1.0, "format-2": 0.4, "no-changelog": 0.1},
    # If snapshots are rare, old owners have theirs while new owners haven't.
    deltas=(1, 2, 3, 5, 10, 10),
    retained=(1, 1, 2, 3, 4),
    strategies=("AllAtOnce", "AllAtOnce", "Batched", "OnDemand"),
    events={"undo": 2, "lose": 5, "restart": 3, "rot": 4, "look": 5, "save": 5, "fault": 8},
    points=KEEPING,
    held=(),
    failing=(*UPLOADS, "snapshot.upload", "versions.deleted"),
)
#: So many epochs that the state of partitions is deleted that were given up long ago, which happens seldom.
RETIRED = Theme(
    odds={"eager-cleanup": 1.0, "format-2": 0.3, "no-changelog": 0.05, "two-actions": 0.0},
    rows=(20,),
    deltas=(7, 8, 9, 10, 10),
    retained=(1, 1, 2, 3),
    epochs=(42, 44),
    strategies=("AllAtOnce", "AllAtOnce", "Batched", "OnDemand"),
    targets=(1, 1, 2, 2, 3, 4, 5, 6, "owners"),
    changes=0.7,
    prepared=0.2,
    events={"lose": 6, "restart": 1, "look": 2, "save": 5, "fault": 6, "nothing": 2},
    points=KEEPING,
    held=("retired.delete",),
    failing=UPLOADS,
)
#: Migrations are cancelled and undone, and take long.
PLANS = Theme(
    strategies=("AllAtOnce", "Batched", "Fluid"),
    events={"cancel": 3, "undo": 6, "restart": 3, "nothing": 1},
)
EVERYTHING = Theme(operators=OPERATORS)
THEMES = {
    "ways": WAYS,
    "sweeps": SWEEPS,
    "copies": COPIES,
    "large": LARGE_STATE,
    "attempts": ATTEMPTS,
    "demand": DEMAND,
    "files": FILES,
    "cleanups": CLEANUPS,
    "retired": RETIRED,
    "plans": PLANS,
    "everything": EVERYTHING,
}
#: How often each of them has its turn.
TURNS = ("ways", "demand", "files", *THEMES)
