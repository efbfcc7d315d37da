"""Epochs: their logs, the step that is planned meanwhile, and their tasks."""

from __future__ import annotations

from collections.abc import Iterator

from model.recovery import LEFT_ROWS, entry_of, expected, named, owners, partitions_of, recovered, table_at
from model.rules import Guard, Rules
from model.state import (
    Changelog,
    Checkpoint,
    Content,
    Driver,
    Entry,
    Id,
    Instance,
    Offset,
    PerBin,
    Snapshot,
    State,
    Upload,
)
from model.steps import Step, replaced, without

OTHER_ROWS = 100
"""Added to the record for rows that another attempt has made of it."""


def goes_on(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    match d.phase:
        case "log next":
            yield _log(rules, s, d)
        case "write the entry late":
            yield _write_late(rules, s, d)
        case "run":
            yield from _task(rules, s, d)
            yield from _commit(rules, s, d)


def _log(rules: Rules, s: State, d: Driver) -> Step:
    """Logs the epoch with the name of the entry in force, durable since the epoch before was planned."""
    c = s.files
    if len(c.offsets) != d.epoch:
        return Step(("another run has logged the epoch", d.run, d.epoch), without(s, d))
    assert d.entry is not None
    name = d.entry if rules.has(Guard.NAME_IN_LOG) else None
    logged = c._replace(offsets=(*c.offsets, Offset(c.winds, d.run, name, partitions_of(d.entry))))
    if not rules.has(Guard.LATER_ENTRIES_STAY):
        logged = logged._replace(
            entries=frozenset(e for e in c.entries if e.name.epoch < d.epoch or e.name == d.entry)
        )
    is_durable = d.entry is not None and entry_of(c, d.entry) is not None
    phase = "plan" if is_durable or rules.has(Guard.DURABLE_ENTRY) else "write the entry late"
    return Step(("log", d.run, d.epoch), replaced(s, d, d._replace(phase=phase, record=c.winds), logged))


def _write_late(rules: Rules, s: State, d: Driver) -> Step:
    """Only without its guard."""
    assert d.entry is not None
    before = s.files._replace(offsets=s.files.offsets[: d.epoch])
    entry = Entry(d.entry, named(rules, before, d.epoch - 1), None)
    files = s.files._replace(entries=s.files.entries | {entry})
    return Step(("write the entry late", d.run), replaced(s, d, d._replace(phase="plan"), files))


def may_commit(rules: Rules, c: Checkpoint, d: Driver) -> bool:
    """True if the epoch that a driver runs may still become the one that is committed."""
    if rules.real_time:
        return len(c.commits) == d.epoch == len(c.offsets)
    return len(c.commits) == d.epoch < len(c.offsets) and c.offsets[d.epoch].record == d.record


def _task(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """The next partition's task; in whichever order, as they have nothing in common."""
    assert d.entry is not None
    done = {partition for partition, _ in d.done}
    partition = min(set(d.entry.table) - done, default=None)
    if partition is None:
        return
    held = PerBin(
        _loaded(rules, s.files, d, bin) if owner == partition else None
        for bin, owner in enumerate(d.entry.table)
    )
    owned = [bin for bin, owner in enumerate(d.entry.table) if owner == partition]
    left = _left(d, partition) if rules.leaves_rows else None
    if left is not None and any(left[bin] for bin in owned):
        if rules.has(Guard.SWEPT_BEFORE_RETURN):
            left = None
        else:
            held = PerBin(
                (*rows, LEFT_ROWS) if rows is not None and left[bin] else rows for bin, rows in enumerate(held)
            )
    if may_commit(rules, s.files, d):
        for bin in owned:
            if held[bin] != expected(s.files, d.epoch):
                right = expected(s.files, d.epoch)
                fault = f"bin {bin} is loaded as {held[bin]} for epoch {d.epoch}, and not as {right}"
                yield Step(("task", d.run, partition), s, fault)
                return
    elif any(held[bin] is None for bin in owned):
        yield Step(("task fails", d.run, partition), without(s, d))
        return
    for attempt in range(2 if s.left.attempts else 1):
        for has_snapshot in (True,) if d.asks else (False, True) if s.left.snapshots else (False,):
            yield _ended(rules, s, d, partition, held, left, attempt, has_snapshot)


def _left(d: Driver, partition: int) -> PerBin | None:
    """For each bin, whether a store that is still open has rows of it from when it owned the bin."""
    assert d.entry is not None
    store = d.stores[partition]
    if store is None or store.version != d.epoch or (d.ids is not None and store.id != d.ids[partition]):
        return None
    left = PerBin(
        (store.left is not None and store.left[bin]) or (rows is not None and d.entry.table[bin] != partition)
        for bin, rows in enumerate(store.content)
    )
    return left if any(left) else None


def sweeps(s: State) -> Iterator[Step]:
    """An executor deletes the rows of bins that a store has released, whenever it likes."""
    for d in s.drivers:
        for partition, store in enumerate(d.stores):
            if store is not None and store.left is not None:
                swept = _with(d.stores, partition, store._replace(left=None))
                yield Step(("sweep", d.run, partition), replaced(s, d, d._replace(stores=swept)))


def _ended(
    rules: Rules,
    s: State,
    d: Driver,
    partition: int,
    held: PerBin,
    left_rows: PerBin | None,
    attempt: int,
    has_snapshot: bool,
) -> Step:
    """A task has written its changes, and maybe made a snapshot for its executor to upload.

    Attempt 0 is the one that counts. One before it was lost with its executor, or is a speculative twin.
    """
    c = s.files
    assert d.record is not None
    id: Id = (d.run, attempt) if rules.format == 2 else None
    under = c.offsets[d.epoch].record if len(c.offsets) > d.epoch else None
    # If tasks are not deterministic, another attempt makes other rows. Format 1 promises nothing for these.
    record = d.record + (OTHER_ROWS if attempt and rules.format == 2 else 0)
    changes = Changelog(partition, d.epoch + 1, id, record, PerBin(rows is not None for rows in held), under)
    content = PerBin(None if rows is None else (*rows, record) for rows in held)
    written = c._replace(changelogs=frozenset(f for f in c.changelogs if f[:3] != changes[:3]) | {changes})
    now, left, uploads = d._replace(has_written=True), s.left, s.uploads
    if has_snapshot and rules.has(Guard.SWEPT_BEFORE_SNAPSHOT):
        left_rows = None
    store = Instance(d.epoch + 1, id, content, left_rows)
    if attempt == 0:
        now = now._replace(done=(*d.done, (partition, id)))
    else:
        left = left._replace(attempts=left.attempts - 1)
    # The other attempt's executor may be the one that has the next task of the partition.
    held_by_other = d.stores[partition] is not None and d.stores[partition].version == d.epoch + 1
    if not held_by_other or rules.has(Guard.COMMITTED_INSTANCE):
        now = now._replace(stores=_with(d.stores, partition, store))
    if has_snapshot:
        left = left._replace(snapshots=max(0, left.snapshots - 1))
        uploads = uploads | {
            Upload("queued", d.run, d.record, Snapshot(partition, d.epoch + 1, id, content, under, left_rows))
        }
    event = "task" + (" that does not count" if attempt else "") + (" with a snapshot" if has_snapshot else "")
    return Step(
        (event, d.run, partition, d.epoch + 1),
        replaced(s, d, now, written)._replace(left=left, uploads=uploads),
    )


def _with(stores: tuple[Instance | None, ...], partition: int, store: Instance) -> tuple[Instance | None, ...]:
    return (*stores[:partition], store, *stores[partition + 1 :])


def _loaded(rules: Rules, c: Checkpoint, d: Driver, bin: int) -> Content | None:
    """From a staged copy, from the store that has the bin in memory, or from the checkpoint."""
    assert d.entry is not None
    if d.epoch == 0:
        return ()
    owner = d.entry.table[bin]
    tables = owners(rules, c, d.entry, d.epoch)
    before_table = table_at(tables, d.epoch - 1)
    before = owner if before_table is None else before_table[bin]
    if d.staged is not None and d.staged[bin] is not None and before != owner:
        version, rows = d.staged[bin]
        if version == d.epoch or not rules.has(Guard.COPY_FOLLOWS):
            return tuple(rows)
    for holder in dict.fromkeys((owner,) if rules.adopts_from_files else (owner, before)):
        store = d.stores[holder]
        if store is None or store.content[bin] is None:
            continue
        is_committed = d.ids is None or store.id == d.ids[holder] or not rules.has(Guard.COMMITTED_INSTANCE)
        is_right = store.version == d.epoch and is_committed and holder == before
        if is_right or not rules.has(Guard.SAME_VERSION):
            rows = store.content[bin]
            return None if rows is None else tuple(rows)
    return recovered(rules, c, tables, bin, d.epoch)


def _commit(rules: Rules, s: State, d: Driver) -> Iterator[Step]:
    """An atomic create that does not overwrite: each epoch has one commit.

    In real-time mode Spark logs the epoch right before; the two are one step here.
    """
    c = s.files
    assert d.entry is not None
    assert d.record is not None
    done = dict(d.done)
    if set(done) != set(d.entry.table):
        return
    is_free = len(c.commits) == d.epoch and (not rules.real_time or len(c.offsets) == d.epoch)
    replaces = not rules.has(Guard.ONE_COMMIT) and len(c.commits) > d.epoch
    if not is_free and not replaces:
        yield Step(("another run has committed the epoch", d.run, d.epoch), without(s, d))
        return
    ids = tuple(done.get(p) for p in range(rules.partitions))
    commits = (*c.commits[: d.epoch], ids, *c.commits[d.epoch + 1 :])
    offsets = c.offsets
    if rules.real_time:
        offsets = (*offsets, Offset(d.record, d.run, d.entry, partitions_of(d.entry)))
    after = c._replace(
        offsets=offsets, commits=commits, oldest=max(c.oldest, len(commits) - rules.retained + 1)
    )
    if d.epoch + 1 == rules.epochs:
        yield Step(("commit", d.run, d.epoch), without(s, d)._replace(files=after))
        return
    yield Step(("commit", d.run, d.epoch), replaced(s, d, _after_commit(rules, d, ids), after))


def _after_commit(rules: Rules, d: Driver, ids: tuple[Id, ...]) -> Driver:
    stores = d.stores
    if rules.has(Guard.SAME_VERSION):  # One of an older version is never read again.
        stores = tuple(i if i is not None and i.version == d.epoch + 1 else None for i in stores)
    staged = d.staged
    if staged is not None and rules.has(Guard.COPY_FOLLOWS):  # What the epoch changed is sent after the copy.
        staged = PerBin(None if copy is None else (d.epoch + 1, (*copy[1], d.record)) for copy in staged)
    return d._replace(
        phase="plan" if rules.real_time else "log next",
        epoch=d.epoch + 1,
        is_again=False,
        entry=d.next_entry or d.entry,
        next_entry=None,
        asks=False,
        ids=ids,
        done=(),
        stores=stores,
        staged=None if d.next_entry is None and d.plan is None else staged,
    )
