"""An epoch after the first one of a run, the tasks of any epoch, and its commit."""

from __future__ import annotations

from collections.abc import Iterator

from model.recovery import expected, owners, recovered, table_at
from model.rules import Guard, Rules
from model.state import Changelog, Content, Driver, Entry, Id, Instance, Name, Offset, PerBin, Snapshot, State, Table, Upload
from model.steps import Step, replaced, without


def goes_on(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    match d.phase:
        case "log next":
            yield from _log(rules, s, d)
        case "plan":
            yield from _plan(rules, s, d)
        case "run":
            yield from _tasks(rules, s, d)
            yield from _commit(rules, s, d)


def _log(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """With the name of the entry in force, which has been durable since the epoch before was planned."""
    if len(s.offsets) != d.epoch:
        yield Step(("another run has logged the epoch", d.run, d.epoch), without(s, d))
        return
    offsets = (*s.offsets, Offset(s.winds, d.run, d.entry))
    entries = s.entries
    if not rules.has(Guard.LATER_ENTRIES_STAY):
        entries = frozenset(e for e in entries if e.name.epoch < d.epoch or e.name == d.entry)
    yield Step(("log", d.run, d.epoch), replaced(s, d, d._replace(phase="plan"))._replace(offsets=offsets, entries=entries))


def _plan(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """Makes the entry of the next epoch durable, or plans no step; then tells Spark how many partitions come next."""
    yield Step(("plan no step", d.run), replaced(s, d, d._replace(phase="run", next_entry=None)))
    if not s.left.steps or d.epoch + 1 >= rules.epochs or d.entry is None:
        return
    left = s.left._replace(steps=s.left.steps - 1)
    for table in rules.tables:
        if table != d.entry.table:
            name = Name(d.epoch + 1, d.run, table)
            entries = s.entries
            if not rules.has(Guard.NAMED_ENTRIES):
                name = name._replace(run=0)
                entries = frozenset(e for e in entries if e.name.epoch != name.epoch)
            if rules.has(Guard.DURABLE_ENTRY):
                entries = entries | {Entry(name, d.entry)}
            now = d._replace(phase="run", next_entry=name, has_written=True)
            yield Step(("plan", d.run, name.epoch, tuple(table)), replaced(s, d, now)._replace(entries=entries, left=left))


def may_commit(s: State, d: Driver) -> bool:
    """Whether the epoch of a driver that is about to load state may still become the one that is committed."""
    return len(s.commits) == d.epoch and len(s.offsets) > d.epoch


def _tasks(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    assert d.entry is not None
    done = {partition for partition, _ in d.done}
    wanted = sorted(set(d.entry.table) - done)
    if len(s.offsets) <= d.epoch:  # The logs were wound back under a driver that was frozen.
        return
    record = s.offsets[d.epoch].record
    for partition in wanted[:1]:  # In whichever order: they have nothing in common.
        loaded = _load(rules, s, d, partition)
        if isinstance(loaded, str):
            if may_commit(s, d):
                yield Step(("task", d.run, partition), s, f"partition {partition} at epoch {d.epoch}: {loaded}")
            else:
                yield Step(("task fails", d.run, partition), without(s, d))
            continue
        attempt: Id = (d.run, 0) if rules.format == 2 else None
        yield from _ended(rules, s, d, partition, loaded, record, attempt, "task")
        if s.left.attempts:
            left = s.left._replace(attempts=s.left.attempts - 1)
            again: Id = (d.run, 1) if rules.format == 2 else None
            for step in _ended(rules, s._replace(left=left), d, partition, loaded, record, again, "task that does not count"):
                yield step._replace(state=replaced(step.state, next(x for x in step.state.drivers if x.run == d.run), d))


def _ended(
    rules: Rules, s: State, d: Driver, partition: int, loaded: PerBin, record: int, attempt: Id, event: str
) -> Iterator[Step]:
    """A task has written its changes; with or without a snapshot that its executor is to upload."""
    version = d.epoch + 1
    mine = PerBin(c is not None for c in loaded)
    changes = Changelog(partition, version, attempt, record, mine, record)
    content = PerBin(None if c is None else (*c, record) for c in loaded)
    stores = tuple(Instance(version, attempt, content) if p == partition else i for p, i in enumerate(d.stores))
    now = d._replace(done=tuple(sorted((*d.done, (partition, attempt)))), stores=stores, has_written=True)
    others = frozenset(f for f in s.changelogs if f[:3] != changes[:3])
    after = replaced(s, d, now)._replace(changelogs=others | {changes})
    yield Step((event, d.run, partition, version), after)
    if s.left.snapshots:
        left = s.left._replace(snapshots=s.left.snapshots - 1)
        upload = Upload("queued", d.run, record, Snapshot(partition, version, attempt, content, record))
        yield Step((f"{event}, with a snapshot", d.run, partition, version),
            after._replace(uploads=s.uploads | {upload}, left=left))


def _load(rules: Rules, s: State, d: Driver, partition: int) -> PerBin | str:
    """What a partition holds at the version that the epoch begins with; or why that cannot be had, or is wrong."""
    assert d.entry is not None
    held = [_bin(rules, s, d, bin) if owner == partition else None for bin, owner in enumerate(d.entry.table)]
    wanted = expected(s, d.epoch)
    for bin, rows in enumerate(held):
        if d.entry.table[bin] == partition:
            if rows is None:
                return f"bin {bin} cannot be recovered"
            if rows != wanted and may_commit(s, d):
                return f"bin {bin} has {rows}, and not {wanted}"
    return PerBin(held)


def _bin(rules: Rules, s: State, d: Driver, bin: int) -> Content | None:
    """From the store that has the bin in memory, or from the checkpoint."""
    assert d.entry is not None
    if d.epoch == 0:
        return ()
    owner = d.entry.table[bin]
    tables = owners(rules, s, d.entry, d.epoch)
    before = table_at(tables, d.epoch - 1)[bin] if tables else owner
    for holder in (owner, before):
        store = d.stores[holder]
        if store is None or store.content[bin] is None:
            continue
        is_right = store.version == d.epoch and (d.ids is None or store.id == d.ids[holder])
        if (is_right and holder == before) or not rules.has(Guard.SAME_INSTANCE):
            return store.content[bin]
    if tables is None:
        return None
    return recovered(rules, s, tables, bin, d.epoch)


def _commit(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """An atomic create that does not overwrite; so each epoch has one commit."""
    assert d.entry is not None
    done = dict(d.done)
    if set(done) != set(d.entry.table):
        return
    if len(s.commits) != d.epoch or len(s.offsets) <= d.epoch:
        yield Step(("another run has committed the epoch", d.run, d.epoch), without(s, d))
        return
    ids = tuple(done.get(p) for p in range(rules.partitions))
    commits = (*s.commits, ids)
    floor = max(s.floor, len(commits) - rules.retained + 1)
    stores = d.stores
    if rules.has(Guard.SAME_INSTANCE):  # One of an older version is never read again.
        stores = tuple(i if i is not None and i.version == d.epoch + 1 else None for i in stores)
    now = d._replace(
        phase="log next", epoch=d.epoch + 1, is_first=False, entry=d.next_entry or d.entry, next_entry=None, ids=ids, done=(),
        stores=stores)
    after = replaced(s, d, now) if d.epoch + 1 < rules.epochs else without(s, d)
    yield Step(("commit", d.run, d.epoch), after._replace(commits=commits, floor=floor))


