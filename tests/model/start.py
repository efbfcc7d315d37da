"""How a run begins: it logs its first epoch, looks, claims its place, looks again, and only then writes."""

from __future__ import annotations

from collections.abc import Iterator

from model.recovery import begun, entry_of, first_entry, named, partitions_of, prepared
from model.rules import Guard, Rules
from model.state import Changelog, Checkpoint, Claim, Driver, Entry, Name, Offset, Snapshot, State
from model.steps import Step, replaced, without


def starts(rules: Rules, s: State) -> Iterator[Step]:
    """Spark reads its logs. The run goes on with the epoch after the last committed one, logged or not."""
    c, left = s.files, s.left
    if (
        not left.starts
        or len(c.commits) == rules.epochs
        or (s.drivers and not left.others)
        or len(s.drivers) == rules.drivers
    ):
        return
    epoch = len(c.commits)
    is_logged = len(c.offsets) > epoch
    driver = Driver(
        run=s.runs,
        phase="count" if is_logged or rules.real_time else "log",
        epoch=epoch,
        record=c.offsets[epoch].record if is_logged else s.runs if rules.real_time else None,
        ids=c.commits[-1] if c.commits else None,
        stores=(None,) * rules.partitions,
        # Only a rollback asks for it; elsewhere it would but multiply the states.
        is_again=is_logged and rules.budget.rollbacks > 0,
    )
    left = left._replace(starts=left.starts - 1, others=left.others - bool(s.drivers))
    yield Step(
        ("start", driver.run, epoch), s._replace(drivers=(*s.drivers, driver), runs=s.runs + 1, left=left)
    )


def begins(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    match d.phase:
        case "log":
            yield from _log(rules, s, d)
        case "count":
            yield _count(rules, s, d)
        case "look":
            yield from _look(rules, s, d)
        case "claim":
            yield _claim(rules, s, d)
        case "look again":
            yield _look_again(rules, s, d)
        case "clean":
            yield from _clean(rules, s, d)
        case "open":
            yield _open(rules, s, d)


def _log(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Without a name: which entry is in force is found out only afterwards.

    The number of partitions is that of the epoch before, or that of a step which was prepared for this one.
    """
    c = s.files
    if len(c.offsets) != d.epoch:
        yield Step(("another run has logged the epoch", d.run, d.epoch), without(s, d))
        return
    in_force = named(rules, c, d.epoch)
    for partitions in sorted({partitions_of(n) for n in (in_force, *prepared(c, in_force, d.epoch))}):
        logged = c._replace(offsets=(*c.offsets, Offset(c.winds, None, None, partitions)))
        now = d._replace(phase="count", record=c.winds)
        yield Step(("log", d.run, d.epoch, partitions), replaced(s, d, now, logged))


def newest_claim(c: Checkpoint) -> int:
    return c.claims[-1].number if c.claims else 0


def _count(rules: Rules, s: State, d: Driver) -> Step:
    is_late = d.entry is not None  # Without its guard, a start counts once it has looked.
    now = d._replace(phase="claim" if is_late else "look", claimed=newest_claim(s.files))
    return Step(("count the claims", d.run), replaced(s, d, now))


def _look(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Reads all that may refuse the run, and lists what lost epochs may have left."""
    c = s.files
    if is_behind(rules, c, d):
        yield refused(rules, s, d)
        return
    # State of the next version is of the same epoch if a run has got as far as to make some.
    has_begun = not rules.real_time and begun(rules, c, d.epoch) is not None
    now = d._replace(
        phase="claim" if rules.has(Guard.COUNT_FIRST) else "count",
        goes_on_from=d.epoch + has_begun,
        lost=frozenset(f for files in (c.changelogs, c.snapshots) for f in files if _is_lost(rules, d, f)),
    )
    for entry in _in_force(rules, c, d):
        yield Step(("look", d.run, *entry[:2]), replaced(s, d, now._replace(entry=entry)))


def _in_force(rules: Rules, c: Checkpoint, d: Driver) -> list[Name]:
    """The entry that the logs or a claim name for the epoch; else a step that was prepared for it."""
    if not rules.has(Guard.NAME_IN_LOG):
        return [max((e.name for e in c.entries if e.name.epoch <= d.epoch), default=first_entry(rules))]
    entry = named(rules, c, d.epoch)
    if rules.real_time:
        return [entry]
    is_decided = begun(rules, c, d.epoch) is not None and rules.has(Guard.CLAIM_DECIDES)
    steps = [] if is_decided or entry.epoch == d.epoch else prepared(c, entry, d.epoch)
    steps = [name for name in steps if partitions_of(name) == c.offsets[d.epoch].partitions]
    return steps or [entry]


def _is_lost(rules: Rules, d: Driver, file: Changelog | Snapshot) -> bool:
    """True if a file is of an epoch that the logs have lost. In format 2, ids say which files are read."""
    if not rules.has(Guard.IDS_OUTLIVE_STARTS if rules.format == 2 else Guard.LOST_FILES_GO):
        return rules.format == 2 and file.version > d.epoch
    if rules.format == 2:
        return False
    if file.version == d.epoch + 1 and rules.has(Guard.OLDER_THAN_EPOCH):
        return file.under != d.record
    return file.version > d.epoch


def is_behind(rules: Rules, c: Checkpoint, d: Driver) -> bool:
    """True if the logs have gone on from the epoch that the run begins with, or back."""
    logged = len(c.offsets) - (0 if rules.real_time else 1)
    return logged != d.epoch or len(c.commits) != d.epoch


def refused(rules: Rules, s: State, d: Driver) -> Step:
    fault = "a run that is refused has changed the checkpoint" if d.has_written else None
    after = without(s, d)
    if not rules.has(Guard.NUMBERS_STAY):
        claims = tuple(x for x in s.files.claims if x.run != d.run)
        after = after._replace(files=s.files._replace(claims=claims))
    return Step(("another run goes on", d.run), after, fault)


def _claim(rules: Rules, s: State, d: Driver) -> Step:
    """An atomic create that does not overwrite. Of many claims, the newest are kept."""
    c = s.files
    number = d.claimed + 1 if rules.has(Guard.EXCLUSIVE_CLAIM) else newest_claim(c) + 1
    if any(x.number == number for x in c.claims):
        return refused(rules, s, d)
    assert d.entry is not None
    assert d.record is not None
    claims = tuple(sorted((*c.claims, Claim(number, d.run, d.epoch, d.record, d.entry, d.goes_on_from))))[
        -rules.remembered :
    ]
    now = d._replace(phase="look again", claimed=number, was_behind=is_behind(rules, c, d))
    if rules.budget.rollbacks and any(claim.epoch == d.epoch for claim in c.claims):
        now = now._replace(is_again=True)
    return Step(("claim", d.run, number), replaced(s, d, now, c._replace(claims=claims)))


def _look_again(rules: Rules, s: State, d: Driver) -> Step:
    """At the claims, too: the number may be one that was removed because it was old."""
    if rules.has(Guard.SECOND_LOOK) and (is_behind(rules, s.files, d) or newest_claim(s.files) != d.claimed):
        return refused(rules, s, d)
    return Step(("look again", d.run), replaced(s, d, d._replace(phase="clean" if d.lost else "open")))


def _clean(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Deletes one lost file after the other, if it is still the one that was listed.

    Looking and deleting are one step here. In fact there is a window between the two.
    """
    c = s.files
    for file in d.lost:
        now = d._replace(lost=d.lost - {file}, has_written=True, phase="clean" if len(d.lost) > 1 else "open")

        def is_same(there: Changelog | Snapshot, listed: Changelog | Snapshot = file) -> bool:
            return there == listed if rules.has(Guard.SAME_FILE) else there[:3] == listed[:3]

        if isinstance(file, Snapshot):
            kept = c._replace(snapshots=frozenset(f for f in c.snapshots if not is_same(f)))
        else:
            kept = c._replace(changelogs=frozenset(f for f in c.changelogs if not is_same(f)))
        kind = type(file).__name__.lower()
        yield Step((f"delete lost {kind}", d.run, file.partition, file.version), replaced(s, d, now, kept))


def _open(rules: Rules, s: State, d: Driver) -> Step:
    """The entry that the checkpoint begins with is written last: a start that was cut short begins anew."""
    c = s.files
    assert d.entry is not None
    entries = c.entries if entry_of(c, d.entry) else c.entries | {Entry(d.entry, None, None)}
    if not rules.has(Guard.LATER_ENTRIES_STAY):
        entries = frozenset(e for e in entries if e.name.epoch <= d.epoch)
    now = d._replace(
        phase="plan",
        plan=c.plans[0] if c.plans and rules.has(Guard.PLAN_OUTLIVES_RUN) else None,
        has_written=d.has_written or entries != c.entries,
    )
    fault = "a run begins though the logs had gone on before it claimed its place" if d.was_behind else None
    return Step(("begin", d.run, d.epoch), replaced(s, d, now, c._replace(entries=entries)), fault)
