"""Plans: how they are accepted, carried out step by step, and forgotten when they have ended."""

from __future__ import annotations

from collections.abc import Iterator

from model.epoch import may_commit
from model.recovery import entry_of, expected, owners, way
from model.rules import Guard, Rules
from model.state import Checkpoint, Driver, Entry, Name, PerBin, Plan, State
from model.steps import Step, replaced


def migrates(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    if d.phase == "plan":
        yield from _accept(rules, s, d)
        yield from _plan(rules, s, d)
    elif d.phase == "run" and not d.done:
        yield from _copy(rules, s, d)
    elif d.phase == "undo":
        yield _write_rollback(rules, s, d)
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
            replaced(s, d, d._replace(plan=plan), c._replace(plans=(*there, plan)))._replace(
                left=left, accepted=s.accepted + 1
            ),
        )


def steps_taken(c: Checkpoint, name: Name | None, migration: int) -> int:
    """Counts by the migration's newest entry on the chain, because older ones may have been pruned."""
    while name is not None and (entry := entry_of(c, name)) is not None:
        if entry.step is not None and entry.step[0] == migration:
            return entry.step[1] + 1
        name = entry.previous
    return 0


def _plan(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Makes the next epoch's entry durable, then tells Spark its number of partitions; or the step waits."""
    c = s.files
    assert d.entry is not None
    going_on = d._replace(phase="run", next_entry=None)
    if d.plan is None:
        yield Step(("plan no step", d.run), replaced(s, d, going_on))
        return
    taken = steps_taken(c, d.entry, d.plan.migration)
    if d.plan.is_stopped:
        is_over = d.entry.epoch < d.epoch and not (d.is_again and rules.has(Guard.ROLLBACK_WAITS))
        yield Step(
            ("begin the rollback" if is_over else "wait for the last step", d.run),
            replaced(s, d, d._replace(phase="undo") if is_over else going_on),
        )
        return
    if s.left.rollbacks and d.plan.source is not None and d.plan.migration >= 0:
        yield _stop(s, d)
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
        yield Step(
            ("plan a step", d.run, name.epoch, tuple(table)), replaced(s, d, now, c._replace(entries=entries))
        )


def rollback_of(plan: Plan, taken: int) -> Plan:
    """The migration that goes back over the tables of `plan`. Its number follows from that of `plan`."""
    assert plan.source is not None
    back = (plan.source, *plan.tables)[:taken][::-1]
    return Plan(-1 - plan.migration, back, back[0] if back else plan.source)


def _stop(s: State, d: Driver) -> Step:
    """By hand, or as the deadline has passed: the plan's file says that it is to be undone."""
    assert d.plan is not None
    stopped = d.plan._replace(is_stopped=True)
    plans = tuple(stopped if p == d.plan else p for p in s.files.plans)
    files = s.files._replace(plans=plans if stopped in plans else (*plans, stopped), promised=d.plan.source)
    now = d._replace(phase="run", next_entry=None, plan=stopped)
    left = s.left._replace(rollbacks=s.left.rollbacks - 1)
    return Step(("stop, to roll back", d.run), replaced(s, d, now, files)._replace(left=left))


def _write_rollback(rules: Rules, s: State, d: Driver) -> Step:
    """Makes the plan of the rollback durable; without a guard, after that of the migration has gone."""
    c = s.files
    assert d.plan is not None
    plan = rollback_of(d.plan, steps_taken(c, d.entry, d.plan.migration))
    if not plan.tables:
        return Step(("find nothing to undo", d.run), replaced(s, d, d._replace(phase="forget")))
    if rules.has(Guard.ROLLBACK_FIRST):
        now = d._replace(phase="forget")
        plans = tuple(p for p in c.plans if p.migration != plan.migration)
        return Step(("write the rollback", d.run), replaced(s, d, now, c._replace(plans=(*plans, plan))))
    if d.plan in c.plans:
        plans = tuple(p for p in c.plans if p != d.plan)
        return Step(("forget the plan", d.run), replaced(s, d, d, c._replace(plans=plans)))
    now = d._replace(phase="plan", plan=plan)
    return Step(("write the rollback", d.run), replaced(s, d, now, c._replace(plans=(*c.plans, plan))))


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
    taken = steps_taken(s.files, d.entry, d.plan.migration)
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
    plans = tuple(p for p in c.plans if p != gone)
    plan = plans[0] if plans and rules.has(Guard.OWN_PLAN) else None
    if d.plan is not None and d.plan.is_stopped:
        plan = next((p for p in plans if p.migration == -1 - d.plan.migration), plan)
    fault = None if gone in (None, d.plan) else f"a plan that another driver has accepted is deleted: {gone}"
    return Step(
        ("forget the plan", d.run),
        replaced(s, d, d._replace(phase="plan", plan=plan), c._replace(plans=plans)),
        fault,
    )
