"""Plans are accepted, carried out step by step, and forgotten."""

from __future__ import annotations

from itertools import pairwise

from model.rollback import steps_taken
from traces.books import Part, WrongError
from traces.events import Event
from traces.history import Table

#: At the end of the id of a migration that undoes another one.
ROLLBACK = "-rollback"


class Plans(Part):
    """A migration's steps are taken one after the other, and no other one ever has the file of its plan."""

    def plan(self, e: Event) -> None:
        self._require_own(e)
        self.life.plans.add(e["migration"])
        self.life.plan_of[e["file"]] = e["migration"]

    def forgotten(self, e: Event) -> None:
        self._require_own(e)
        self.life.plan_of.pop(e["file"], None)

    def _require_own(self, e: Event) -> None:
        there = self.life.plan_of.get(e["file"], e["migration"])
        if there != e["migration"]:
            raise WrongError(f"{e['file']} has the plan of {there}, which another driver may have accepted")

    def step(self, e: Event, table: Table) -> None:
        """The entry of a step follows that of the step before, along the chain."""
        if table.step is None:
            return
        h, (migration, index) = self.h, table.step
        if migration not in self.life.plans:
            raise WrongError(f"a step of {migration}, which nobody has accepted")
        assert table.previous is not None
        before = h.name(table.previous, 0)
        taken = steps_taken(h.checkpoint(None, 0), before, h.migration(migration))
        # One that only opens partitions has the number of the step before.
        if index != taken - bool(e.get("opening")):
            raise WrongError(f"step {index} of {migration} is planned, and {taken} were taken")
        if migration.endswith(ROLLBACK) and not e.get("opening"):
            self._require_way_back(table, migration, index)

    def _require_way_back(self, table: Table, migration: str, index: int) -> None:
        """The steps of a rollback lead over the tables that its migration has led to, back to the first."""
        before = self._before(table)
        while before is not None and before.step is not None and before.step[0] == migration:
            before = self._before(before)
        chain: list[Table] = []
        while before is not None:
            chain.insert(0, before)
            if before.step is None or before.step[0] != migration.removesuffix(ROLLBACK):
                break
            before = self._before(before)
        else:
            return
        opened = {b.name for a, b in pairwise(chain) if a.owners == b.owners and a.partitions < b.partitions}
        passed = [t for t in chain if t.name not in opened]
        back = passed[-2::-1] or self._began(migration.removesuffix(ROLLBACK)) or passed
        wanted = back[index] if index < len(back) else None
        if wanted is None or (table.partitions, table.owners) != (wanted.partitions, wanted.owners):
            raise WrongError(f"step {index} of {migration} does not lead back the way that its migration came")

    def _began(self, migration: str) -> list[Table]:
        """The table with which a migration began, even if the query was wound back to before that."""
        steps = [t for t in self.h.tables.values() if t.step is not None and t.step[0] == migration]
        began = self._before(min(steps, key=lambda t: t.epoch)) if steps else None
        return [] if began is None else [began]

    def _before(self, table: Table) -> Table | None:
        return None if table.previous is None else self.h.tables.get(table.previous)
