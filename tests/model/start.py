"""How a run begins: it logs its first epoch or finds it logged, looks, claims its place, looks again, and only then writes."""

from __future__ import annotations

from collections.abc import Iterator

from model.recovery import entry_of, named
from model.rules import Guard, Rules
from model.state import Changelog, Claim, Driver, Entry, Name, Offset, Snapshot, State
from model.steps import Step, replaced, without

STOCK: int = -1
"""The run of the entry that a checkpoint begins with: it is the same whichever run writes it."""


def first_entry(rules: Rules) -> Name:
    return Name(0, STOCK, rules.first)


def starts(rules: Rules, s: State) -> Iterator[Step]:
    """Spark reads its logs: the run goes on with the epoch after the last one that is logged, unless that is not committed."""
    left = s.left
    if not left.starts or len(s.commits) == rules.epochs or (s.drivers and not left.others) or len(s.drivers) == 2:
        return
    is_logged = len(s.offsets) > len(s.commits)
    run = s.runs
    driver = Driver(
        run=run, phase="count" if is_logged else "log", epoch=len(s.commits), is_first=True, entry=None, next_entry=None, claimed=0,
        lost=frozenset(), ids=s.commits[-1] if s.commits else None, done=(), stores=(None,) * rules.partitions, has_written=False, goes_on_from=0,
    )
    left = left._replace(starts=left.starts - 1, others=left.others - bool(s.drivers))
    yield Step(("start", run, driver.epoch), s._replace(drivers=(*s.drivers, driver), runs=run + 1, left=left))


def begins(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    match d.phase:
        case "log":
            yield from _log(rules, s, d)
        case "count":
            yield from _count(rules, s, d)
        case "look":
            yield from _look(rules, s, d)
        case "claim":
            yield from _claim(rules, s, d)
        case "look again":
            yield from _look_again(rules, s, d)
        case "clean":
            yield from _clean(rules, s, d)
        case "open":
            yield from _open(rules, s, d)


def _log(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Without a name: which entry is in force is found out only afterwards."""
    if len(s.offsets) != d.epoch:
        yield Step(("another run has logged the epoch", d.run, d.epoch), without(s, d))
    else:
        yield Step(("log", d.run, d.epoch),
            replaced(s, d, d._replace(phase="count"))._replace(offsets=(*s.offsets, Offset(s.winds, None, None))))


def _count(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    yield Step(("count the claims", d.run), replaced(s, d, d._replace(phase="look", claimed=newest_claim(s))))


def newest_claim(s: State) -> int:
    return s.claims[-1].number if s.claims else 0


def _look(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Reads all that may refuse the run, and lists what lost epochs may have left."""
    if is_behind(s, d):
        yield refused(s, d)
        return
    entry = named(rules, s, d.epoch) or first_entry(rules)
    if not rules.has(Guard.CLAIM_NAMES_ENTRY):
        entry = max((e.name for e in s.entries if e.name.epoch <= d.epoch), default=entry)
    lost = frozenset(f for f in (*s.changelogs, *s.snapshots) if _is_lost(rules, s, d, f))
    # State of the next version is of the same epoch if a run has got as far as to make some.
    logged = s.offsets[d.epoch]
    has_begun = logged.entry is not None or any(c.epoch == d.epoch and c.record == logged.record for c in s.claims)
    goes_on_from = d.epoch + 1 if has_begun else d.epoch
    claimed = d.claimed if rules.has(Guard.COUNT_FIRST) else newest_claim(s)
    yield Step(("look", d.run), replaced(s, d, d._replace(phase="claim", entry=entry, lost=lost, claimed=claimed, goes_on_from=goes_on_from)))


def _is_lost(rules: Rules, s: State, d: Driver, file: Changelog | Snapshot) -> bool:
    """Whether a file is of an epoch that the logs have lost. In format 2, ids say which files are read."""
    if rules.format == 2 and rules.has(Guard.IDS_OUTLIVE_STARTS):
        return False
    if rules.format == 1 and not rules.has(Guard.LOST_FILES_GO):
        return False
    if not rules.has(Guard.OLDER_THAN_EPOCH):
        return file.version > d.epoch
    if file.version == d.epoch + 1:
        return file.under != s.offsets[d.epoch].record
    return file.version > d.epoch


def is_behind(s: State, d: Driver) -> bool:
    """Whether the logs have gone on from the epoch that the run begins with."""
    return len(s.offsets) > d.epoch + 1 or len(s.commits) > d.epoch or len(s.offsets) <= d.epoch


def refused(s: State, d: Driver) -> Step:
    fault = "a run that is refused has changed the checkpoint" if d.has_written else None
    return Step(("another run goes on", d.run), without(s, d), fault)


def _claim(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """An atomic create that does not overwrite."""
    number = d.claimed + 1
    if not rules.has(Guard.EXCLUSIVE_CLAIM):
        number = newest_claim(s) + 1
    is_taken = any(c.number == number for c in s.claims)
    if is_taken:
        yield refused(s, d)
        return
    assert d.entry is not None
    if len(s.offsets) <= d.epoch:
        yield refused(s, d)
        return
    claim = Claim(number, d.run, d.epoch, s.offsets[d.epoch].record, d.entry, d.goes_on_from)
    claims = tuple(sorted((*s.claims, claim)))[-rules.remembered:]
    yield Step(("claim", d.run, number), replaced(s, d, d._replace(phase="look again", claimed=number))._replace(claims=claims))


def _look_again(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    is_newest = newest_claim(s) == d.claimed or not rules.has(Guard.NEWEST_CLAIM_STAYS)
    if not is_newest or rules.has(Guard.SECOND_LOOK) and is_behind(s, d):
        yield refused(s, d)
    else:
        yield Step(("look again", d.run), replaced(s, d, d._replace(phase="clean" if d.lost else "open")))


def _clean(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Deletes one lost file after the other, if it is the one that was listed, and no newer run has claimed."""
    if rules.has(Guard.CLAIM_BEFORE_DELETE) and newest_claim(s) > d.claimed:
        yield Step(("another run has claimed", d.run), without(s, d))
        return
    for file in d.lost:
        now = d._replace(lost=d.lost - {file}, has_written=True)
        now = now._replace(phase="clean" if now.lost else "open")
        if isinstance(file, Snapshot):
            gone = {f for f in s.snapshots if _is_same(rules, f, file)}
            yield Step(("delete lost snapshot", d.run, file.partition, file.version),
                replaced(s, d, now)._replace(snapshots=s.snapshots - gone))
        else:
            lost = {f for f in s.changelogs if _is_same(rules, f, file)}
            yield Step(("delete lost changelog", d.run, file.partition, file.version),
                replaced(s, d, now)._replace(changelogs=s.changelogs - lost))


def _is_same(rules: Rules, there: Changelog | Snapshot, listed: Changelog | Snapshot) -> bool:
    if rules.has(Guard.SAME_FILE):
        return there == listed
    return there[:3] == listed[:3]


def _open(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """The entry that the checkpoint begins with is written last, so that a start which was cut short begins anew."""
    assert d.entry is not None
    entries = s.entries
    if entry_of(s, d.entry) is None:
        entries = entries | {Entry(d.entry, None)}
    if not rules.has(Guard.LATER_ENTRIES_STAY):
        entries = frozenset(e for e in entries if e.name.epoch <= d.epoch)
    now = d._replace(phase="plan", has_written=d.has_written or entries != s.entries)
    yield Step(("begin", d.run, d.epoch), replaced(s, d, now)._replace(entries=entries))
