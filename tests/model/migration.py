"""Plans: how they are accepted, carried out step by step, and forgotten when they have ended."""

from __future__ import annotations

from collections.abc import Iterator

from model import rollback
from model.epoch import may_commit
from model.recovery import expected, owners, way
from model.rules import Guard, Rules
from model.state import Checkpoint, Driver, Entry, Name, PerBin, Plan, State
from model.steps import Step, replaced


def migrates(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    if d.phase == "plan":
        yield from _accept(rules, s, d)
        yield from _plan(rules, s, d)
    elif d.phase == "run" and not d.done:
        yield from _copy(rules, s, d)
    elif d.phase == "note":
        yield rollback.note(rules, s, d)
    elif d.phase in ("undo", "forget") and rules.budget.rollbacks and rollback.is_replaced(s.files, d):
        going_on = d._replace(phase="run", next_entry=None)
        yield Step(("leave the plan to another run", d.run), replaced(s, d, going_on))
    elif d.phase == "undo":
        yield rollback.write(rules, s, d)
    elif d.phase == "forget":
        yield _forget(rules, s, d)


def _accept(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Each migration has a file of its own. Refused while the driver knows of another one that is under way."""
    c = s.files
    if not s.left.plans or d.plan is not None or (c.plans and not rules.has(Guard.OWN_PLAN)):
        return
    left = s.left._replace(plans=s.left.plans - 1)
    for tables in rules.plans:
        assert d.entry is not None
        plan = Plan(s.accepted, tables, d.entry.table if s.left.rollbacks else None)
        there = c.plans if rules.has(Guard.OWN_PLAN) else ()
        yield Step(
            ("accept a plan", d.run, *map(tuple, tables)),
            replaced(s, d, d._replace(plan=plan), c._replace(plans=(*there, plan), promised=None))._replace(
                left=left, accepted=s.accepted + 1
            ),
        )


def _plan(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Makes the next epoch's entry durable, then tells Spark its number of partitions; or the step waits."""
    c = s.files
    assert d.entry is not None
    going_on = d._replace(phase="run", next_entry=None)
    if d.plan is None:
        yield Step(("plan no step", d.run), replaced(s, d, going_on))
        return
    if (begun := rollback.begins(rules, s, d)) is not None:
        yield begun
        return
    taken = rollback.taken(c, d)
    if s.left.rollbacks and d.plan.undoes is None and not d.is_again and taken < len(d.plan.tables):
        yield rollback.stop(s, d)
    if taken == len(d.plan.tables):
        # The last step may be in force from this epoch on, and has ended once that is committed.
        is_over = d.entry.epoch < d.epoch
        yield Step(
            ("find the migration ended" if is_over else "wait for the last step", d.run),
            replaced(s, d, d._replace(phase="forget") if is_over else going_on),
        )
        return
    is_lost = c.is_harmed and rules.has(Guard.SOURCES_CHECKED) and not can_be_rebuilt(rules, c, d)
    asks = is_lost and rules.has(Guard.SNAPSHOT_ASKED)
    yield Step(
        ("let the step wait for snapshots" if asks else "let the step wait", d.run),
        replaced(s, d, going_on._replace(asks=asks)),
    )
    if is_lost:
        return
    if c.is_harmed and rules.has(Guard.SOURCES_CHECKED):
        # Older versions stay incomplete.
        c = c._replace(is_harmed=False, oldest=len(c.commits))
    if s.left.cancels:
        left = s.left._replace(cancels=s.left.cancels - 1)
        yield Step(("cancel", d.run), replaced(s, d, d._replace(phase="forget"))._replace(left=left))
    if d.epoch + 1 < rules.epochs:
        table = d.plan.tables[taken]
        name = Name(d.epoch + 1, d.run if rules.has(Guard.NAMED_ENTRIES) else -1, table)
        entries = c.entries
        if not rules.has(Guard.NAMED_ENTRIES):
            entries = frozenset(e for e in entries if e.name.epoch != name.epoch)
        if rules.has(Guard.DURABLE_ENTRY):
            entries = entries | {Entry(name, d.entry, (d.plan.migration, taken))}
        now = d._replace(phase="run", next_entry=name, has_written=True)
        undoes_another = d.plan.undoes is not None and d.plan.undoes in c.finished
        yield Step(
            ("plan a step", d.run, name.epoch, tuple(table)),
            replaced(s, d, now, c._replace(entries=entries)),
            "a migration that had finished is undone" if undoes_another else rollback.undoes_later(c, d, taken),
        )


def can_be_rebuilt(rules: Rules, c: Checkpoint, d: Driver) -> bool:
    """True if the newest version is there as a whole, as a driver finds from listings.

    Each partition gives bins in the steps that are explored with this.
    """
    tables = owners(rules, c, d.entry, len(c.commits) - 1)
    return all(way(rules, c, tables, bin, len(c.commits)) is not None for bin in range(rules.bins))


def _copy(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Has the bins of the next step copied ahead, from the version that the epoch begins with."""
    if (
        not s.left.copies
        or d.next_entry is not None
        or d.plan is None
        or d.staged is not None
        or d.entry is None
    ):
        return
    if d.epoch == 0 or not may_commit(rules, s.files, d):
        return
    taken = rollback.steps_taken(s.files, d.entry, d.plan.migration)
    if taken < len(d.plan.tables):
        moved = [a != b for a, b in zip(d.entry.table, d.plan.tables[taken], strict=True)]
        staged = PerBin((d.epoch, expected(s.files, d.epoch)) if m else None for m in moved)
        yield Step(
            ("copy ahead", d.run, d.epoch),
            replaced(s, d, d._replace(staged=staged))._replace(left=s.left._replace(copies=s.left.copies - 1)),
        )


def _forget(rules: Rules, s: State, d: Driver) -> Step:
    """Only the file of the plan that the driver has carried out, or cancelled."""
    c = s.files
    gone = d.plan if rules.has(Guard.OWN_PLAN) else (c.plans[0] if c.plans else None)
    # A driver may have noted in the same file that the migration is to be undone.
    plans = tuple(p for p in c.plans if gone is None or p.migration != gone.migration)
    plan = plans[0] if plans and rules.has(Guard.OWN_PLAN) else None
    if d.plan is not None and d.plan.stopped_after is not None:
        plan = next((p for p in plans if p.migration == -1 - d.plan.migration), plan)
    fault = None if gone in (None, d.plan) else f"a plan that another driver has accepted is deleted: {gone}"
    finished = c.finished
    if d.plan is not None and d.plan.source is not None and d.plan.stopped_after is None:
        taken = rollback.taken(c, d)
        if d.plan.undoes is None and taken == len(d.plan.tables) and may_commit(rules, c, d):
            finished |= {d.plan.migration}
    return Step(
        ("forget the plan", d.run),
        replaced(s, d, d._replace(phase="plan", plan=plan), c._replace(plans=plans, finished=finished)),
        fault,
    )
