"""Migrations with deadlines and guards: what is drawn for one, and how each of a life may have ended.

A life notes each plan before it submits it. Its tables are worked out here from its moves alone, and compared
with the routing entries that the life's processes have written.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from binshift import Guard
from binshift.control.directory import ControlDir, open_directory
from binshift.planning.limits import rollback_of, undone_by
from binshift.planning.plan import MigrationPlan
from chaos.life import Life

#: Partitions, and the owner of each bin.
Table = tuple[int, tuple[int, ...]]
UNDONE = ("rollback", "guard")


def limit(rng: random.Random) -> dict[str, Any]:
    """What a migration may take, as arguments of `submit`."""
    end = rng.choices(["rollback", "guard", "keep", "finish"], [12, 3, 3, 2])[0]
    if end == "guard":
        return {"guard": Guard(round(rng.uniform(0.2, 3), 2), epochs=rng.randint(1, 3))}
    late = f"{rng.randint(1, 8)} epochs" if rng.random() < 0.6 else round(rng.uniform(0.5, 8), 1)
    return {"deadline": late, "on_timeout": end}


def intent(plan: MigrationPlan, limits: dict[str, Any]) -> dict[str, Any]:
    """What a life notes of a plan before it submits it."""
    return {
        "plan": {
            "source": [plan.source.partitions, list(plan.source.assignment)],
            "steps": [[s.partitions, [[m.bin, m.target] for m in s.moves]] for s in plan.steps],
            "end": "guard" if "guard" in limits else limits["on_timeout"],
        }
    }


@dataclass(frozen=True)
class Plan:
    """A plan as it was noted: the table before it and after each step, and what its limit does."""

    tables: tuple[Table, ...]
    end: str

    @staticmethod
    def of(noted: dict[str, Any]) -> Plan:
        partitions, owners = noted["source"]
        tables = [(partitions, tuple(owners))]
        for after, moves in noted["steps"]:
            target = dict(moves)
            owners = [target.get(bin, owner) for bin, owner in enumerate(owners)]
            tables.append((after, tuple(owners)))
        return Plan(tuple(tables), noted["end"])


@dataclass
class Noted:
    """What the drivers of a life have noted."""

    plans: dict[str, Plan] = field(default_factory=dict)
    #: Of drivers that died before they knew the migration's id.
    nameless: list[Plan] = field(default_factory=list)
    #: Migrations that somebody has asked to undo.
    undone: set[str] = field(default_factory=set)
    #: Steps that were taken and undone, by the reports of migrations.
    reported: dict[str, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def of(lines: Sequence[dict[str, Any]]) -> Noted:
        noted, begun = Noted(), None
        for line in lines:
            if "plan" in line or "refused" in line:
                noted.nameless += [begun] if begun else []
                begun = Plan.of(line["plan"]) if "plan" in line else None
            elif "migration" in line and begun:
                noted.plans[line["migration"]] = begun
                begun = None
            elif "undoes" in line:
                noted.undone.add(line["undoes"])
                noted.reported.pop(line["undoes"], None)
            elif "report" in line:
                noted.reported[line["report"]] = (line["steps"], line["steps_undone"])
        noted.nameless += [begun] if begun else []
        return noted


@dataclass(frozen=True)
class Entry:
    """A routing entry that was in force."""

    table: Table
    migration: str | None
    opening: bool


def ends(life: Life) -> Counter[str]:
    """How the migrations of a life have ended; raises `ValueError` for one that has ended wrongly."""
    directory = open_directory(str(life.root / "checkpoint"))
    left = directory.migration()
    noted = Noted.of([json.loads(line) for line in (life.root / "plans.jsonl").read_text().splitlines()])
    found: Counter[str] = Counter()
    before: Table | None = None
    for migration, group in groupby(in_force(life, directory), lambda e: _origin(e.migration)):
        entries = list(group)
        if migration is not None and before is not None:
            is_under_way = left is not None and _origin(left.id) == migration
            found[_ended(migration, before, entries, noted, is_under_way=is_under_way)] += 1
        before = entries[-1].table
    return found


def in_force(life: Life, directory: ControlDir) -> list[Entry]:
    """The entries from the first one to the one in force at the end, as the processes have told them."""
    written: dict[str, tuple[str | None, Entry]] = {}
    for file in life.trace.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            if '"event":"entry"' in line and line.endswith("}"):
                e = json.loads(line)
                entry = Entry((e["partitions"], tuple(e["owners"])), e.get("migration"), bool(e.get("opening")))
                written[e["entry"].replace(":", "-")] = (e.get("previous"), entry)
    newest = directory._routing_log().at(directory.logged_epoch())
    assert newest is not None
    chain: list[Entry] = []
    name: str | None = newest.file
    while name is not None:
        previous, entry = written[name]
        chain.append(entry)
        name = previous and previous.replace(":", "-")
    if chain[0].table != (newest.table.partitions, tuple(newest.table.assignment)):
        raise ValueError(f"the entry {newest.file} has another table than the one that was written down")
    return chain[::-1]


def _origin(migration: str | None) -> str | None:
    """The migration that was submitted: this one, or the one that it undoes."""
    return migration and (undone_by(migration) or migration)


def _ended(id_: str, start: Table, entries: Sequence[Entry], noted: Noted, *, is_under_way: bool) -> str:
    """How a migration ended whose entries these are, those that undid it among them."""
    taken = [e.table for e in entries if e.migration == id_ and not e.opening]
    undone = [e.table for e in entries if e.migration != id_ and not e.opening]
    plan = _plan(id_, start, taken, noted)
    tables, last = plan.tables, entries[-1].table
    if (start, *taken) != tables[: len(taken) + 1]:
        raise ValueError(f"migration {id_} went over other tables than those of its plan")
    # If it has only opened partitions, they are closed again.
    way_back = tables[: len(taken)][::-1] or tables[:1]
    if tuple(undone) != way_back[: len(undone)]:
        raise ValueError(f"migration {id_} was not undone over the tables over which it came")
    for of, steps in ((id_, (len(taken), len(undone))), (rollback_of(id_), (len(undone), 0))):
        if noted.reported.get(of, steps) != steps:
            raise ValueError(f"the report of {of} has {noted.reported[of]} steps, and the routing log {steps}")
    if is_under_way:
        return "under way"
    if last == tables[-1]:
        return "at the target"
    if last == start and (plan.end in UNDONE or id_ in noted.undone):
        return "back at the start"
    if plan.end == "keep" and not undone:
        (fewest, owners), (most, _) = tables[len(taken)], tables[len(taken) + 1]
        if last[1] == owners and min(fewest, most) <= last[0] <= max(fewest, most):
            return "stopped on the way"
    how_far = f"{len(taken)} of {len(tables) - 1} steps, {len(undone)} of them undone"
    raise ValueError(f"migration {id_} ({plan.end}) ended after {how_far}")


def _plan(id_: str, start: Table, taken: Sequence[Table], noted: Noted) -> Plan:
    if id_ in noted.plans:
        return noted.plans[id_]
    tables = (start, *taken)
    for plan in noted.nameless:
        if plan.tables[: len(tables)] == tables:
            return plan
    raise ValueError(f"migration {id_} was never submitted, or went over other tables than those of its plan")
