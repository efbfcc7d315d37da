"""How a migration is undone: it is stopped, and then another one leads back the way it came."""

from __future__ import annotations

from model.epoch import may_commit
from model.recovery import entry_of
from model.rules import Guard, Rules
from model.state import Checkpoint, Driver, Name, Plan, State
from model.steps import Step, replaced


def begins(rules: Rules, s: State, d: Driver) -> Step | None:
    """What a driver does that finds a migration to be undone, or a rollback of what has been changed since."""
    assert d.plan is not None
    assert d.entry is not None
    waits = d.is_again and rules.has(Guard.ROLLBACK_WAITS)
    going_on = d._replace(phase="run", next_entry=None)
    if d.plan.stopped_after is not None:
        if taken(s.files, d) > d.plan.stopped_after and rules.has(Guard.ROLLBACK_KNOWS_STEPS):
            # A driver that had been replaced has asked for it, and its successor has gone on.
            return Step(("go on", d.run), replaced(s, d, d._replace(plan=d.plan._replace(stopped_after=None))))
        is_over = d.entry.epoch < d.epoch and not waits
        return Step(
            ("begin the rollback" if is_over else "wait for the last step", d.run),
            replaced(s, d, d._replace(phase="undo") if is_over else going_on),
        )
    if taken(s.files, d) == 0 and not _begins_here(rules, d):
        return Step(
            ("wait, to roll back" if waits else "abandon the rollback", d.run),
            replaced(s, d, going_on if waits else d._replace(phase="forget")),
        )
    return None


def taken(c: Checkpoint, d: Driver) -> int:
    """Steps of a driver's migration. Nothing comes between those of a rollback, so it looks at the newest."""
    assert d.plan is not None
    newest = None if d.entry is None else entry_of(c, d.entry)
    step = None if newest is None else newest.step
    if d.plan.undoes is not None and (step is None or step[0] != d.plan.migration):
        return 0
    return steps_taken(c, d.entry, d.plan.migration)


def steps_taken(c: Checkpoint, name: Name | None, migration: int) -> int:
    """Counts by the migration's newest entry on the chain, because older ones may have been pruned."""
    while name is not None and (entry := entry_of(c, name)) is not None:
        if entry.step is not None and entry.step[0] == migration:
            return entry.step[1] + 1
        name = entry.previous
    return 0


def _begins_here(rules: Rules, d: Driver) -> bool:
    """True unless the plan is a rollback of what has been changed since."""
    assert d.plan is not None
    assert d.entry is not None
    if d.plan.undoes is None:
        return True
    return d.entry.table == d.plan.source and (
        d.entry == d.plan.begins_at or not rules.has(Guard.ROLLBACK_KNOWS_ENTRY)
    )


def undoes_later(c: Checkpoint, d: Driver, taken: int) -> str | None:
    """A rollback begins right after the last step of the migration that it undoes."""
    assert d.plan is not None
    assert d.entry is not None
    entry = entry_of(c, d.entry)
    if d.plan.undoes is None or taken or entry is None or entry.step is None or entry.step[0] == d.plan.undoes:
        return None
    return f"the rollback of migration {d.plan.undoes} undoes migration {entry.step[0]}"


def stop(s: State, d: Driver) -> Step:
    """By hand, or as the deadline has passed. A driver that has been replaced notes it nowhere."""
    assert d.plan is not None
    taken = steps_taken(s.files, d.entry, d.plan.migration)
    stopped = d.plan._replace(stopped_after=taken)
    phase = "run" if is_replaced(s.files, d) else "note"
    left = s.left._replace(rollbacks=s.left.rollbacks - 1)
    after = replaced(s, d, d._replace(phase=phase, next_entry=None, plan=stopped))
    return Step(("stop, to roll back", d.run), after._replace(left=left))


def note(rules: Rules, s: State, d: Driver) -> Step:
    """The file of the plan says that it is to be undone. By now, the driver may have been replaced."""
    c = s.files
    assert d.plan is not None
    plans = (*(p for p in c.plans if p.migration != d.plan.migration), d.plan)
    is_newest = may_commit(rules, c, d) and not is_replaced(c, d)
    files = c._replace(plans=plans, promised=d.plan.source if is_newest else c.promised)
    return Step(("note that it is to be undone", d.run), replaced(s, d, d._replace(phase="run"), files))


def write(rules: Rules, s: State, d: Driver) -> Step:
    """Makes the plan of the rollback durable; without a guard, after that of the migration has gone."""
    c = s.files
    assert d.plan is not None
    assert d.entry is not None
    plan = _rollback_of(d.plan, steps_taken(c, d.entry, d.plan.migration), d.entry)
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


def _rollback_of(plan: Plan, taken: int, entry: Name) -> Plan:
    """The migration that goes back over the tables of `plan`. Its number follows from that of `plan`."""
    assert plan.source is not None
    back = (plan.source, *plan.tables)[:taken][::-1]
    return Plan(-1 - plan.migration, back, entry.table, begins_at=entry)


def is_replaced(c: Checkpoint, d: Driver) -> bool:
    """True if a later run has claimed an epoch that this one has not committed."""
    return any(claim.number > d.claimed and claim.epoch >= d.epoch for claim in c.claims)
