"""The entry in force, the owners of bins, and the reads of a recovery: pure functions of the files.

What a recovery reads is also all that retention keeps (`needed`). Most steps change no file, so results are
remembered.
"""

from __future__ import annotations

from functools import lru_cache

from model.rules import Guard, Rules
from model.state import Changelog, Checkpoint, Content, Entry, Id, Name, Snapshot, Table

Owners = tuple[tuple[int, Table], ...]
"""Tables by the epoch from which they are in force, the newest first; as far back as there are entries."""

File = Changelog | Snapshot

ANY_RUN = -1
"""Stands for the run in the name of a checkpoint's first entry, which is the same whichever run writes it."""
LEFT_ROWS = -2
"""In the content of a bin that was mixed with rows which it had left in a store."""
REMEMBERED = 50_000


def first_entry(rules: Rules) -> Name:
    return Name(0, ANY_RUN, rules.first)


def named(rules: Rules, c: Checkpoint, epoch: int) -> Name:
    """The entry in force at an epoch: along the chain from the newest one that the logs name.

    The newest name up to the epoch may be gone with the claim of a run of long ago.
    """
    name = newest_name(rules, c) or first_entry(rules)
    while name.epoch > epoch:
        entry = entry_of(c, name)
        if entry is None or entry.previous is None:
            break
        name = entry.previous
    return name


def newest_name(rules: Rules, c: Checkpoint) -> Name | None:
    for epoch in range(len(c.offsets) - 1, first_logged(rules, c) - 1, -1):
        name = begun(rules, c, epoch)
        if name is not None:
            return name
    return None


def begun(rules: Rules, c: Checkpoint, epoch: int) -> Name | None:
    """The entry under which an epoch was begun: the log names it or, for the first epoch of a run, a claim."""
    offset = c.offsets[epoch]
    if offset.entry is not None:
        return offset.entry
    for claim in reversed(c.claims) if rules.has(Guard.CLAIM_COUNTS) else ():
        # A run that ended before it wrote the first entry has run nothing.
        if claim.epoch == epoch and claim.record == offset.record and entry_of(c, claim.entry) is not None:
            return claim.entry
    return None


def first_logged(rules: Rules, c: Checkpoint) -> int:
    """Spark purges older epochs from its logs when it commits one."""
    return max(0, len(c.commits) - 1 - rules.retained)


def partitions_of(name: Name) -> int:
    return len(set(name.table))


def prepared(c: Checkpoint, name: Name, epoch: int) -> list[Name]:
    """Steps that follow an entry, and were made durable for an epoch before anybody logged it."""
    return sorted(e.name for e in c.entries if e.previous == name and e.name.epoch == epoch)


def entry_of(c: Checkpoint, name: Name) -> Entry | None:
    return next((e for e in c.entries if e.name == name), None)


@lru_cache(REMEMBERED)
def owners(rules: Rules, c: Checkpoint, name: Name | None, epoch: int) -> Owners:
    """Along the chain from the entry that is in force at `epoch`."""
    if not rules.has(Guard.CHAIN):
        return tuple(
            (e.name.epoch, e.name.table) for e in sorted(c.entries, reverse=True) if e.name.epoch <= epoch
        )
    found = []
    while name is not None and (entry := entry_of(c, name)) is not None:
        found.append((name.epoch, name.table))
        name = entry.previous
    return tuple(found)


def table_at(tables: Owners, epoch: int) -> Table | None:
    return next((table for since, table in tables if since <= epoch), None)


def committed_id(c: Checkpoint, partition: int, version: int) -> Id:
    return c.commits[version - 1][partition] if 0 < version <= len(c.commits) else None


Way = tuple[File, ...]


def way(
    rules: Rules, c: Checkpoint, tables: Owners, bin: int, version: int, any_id: bool = False
) -> Way | None:
    """The files that a recovery of a bin reads, the newest first; `None` if one is missing.

    The base is the newest snapshot of whoever owned the bin at the snapshot's version. After it comes one
    changelog per version.
    """
    files: list[File] = []
    while version > 0:
        table = table_at(tables, version - 1)
        if table is None:
            return None
        owner = table[bin]
        wanted = committed_id(c, owner, version)
        for snapshot in c.snapshots:
            if (
                snapshot.partition == owner
                and snapshot.version == version
                and (any_id or snapshot.id == wanted)
            ):
                return (*files, snapshot)
        if not rules.has(Guard.BASE_SINCE_ARRIVAL):
            older = [
                f
                for f in c.snapshots
                if f.partition == owner and f.version < version and f.content[bin] is not None
            ]
            if older and version > 1 and table_at(tables, version - 2) != table:
                return (*files, max(older, key=lambda f: f.version))
        for change in c.changelogs:
            if change.partition == owner and change.version == version and change.id == wanted:
                files.append(change)
                break
        else:
            return None
        version -= 1
    return tuple(files)


def content(files: Way, bin: int) -> Content | None:
    """The content of a bin after its files were read, the newest of which comes first."""
    rows: Content | None = ()
    for file in reversed(files):
        if isinstance(file, Snapshot):
            rows = file.content[bin]
        elif rows is not None and file.bins[bin]:
            rows = (*rows, file.record)
    return rows


def recovered(rules: Rules, c: Checkpoint, tables: Owners, bin: int, version: int) -> Content | None:
    files = way(rules, c, tables, bin, version, any_id=not rules.has(Guard.COMMITTED_BASE))
    rows = None if files is None else content(files, bin)
    if files is None or rows is None or rules.has(Guard.SWEPT_BEFORE_SNAPSHOT):
        return rows
    table = table_at(tables, version - 1)
    assert table is not None
    own = [
        f
        for f in c.snapshots
        if f.partition == table[bin]
        and f.version <= version
        and f.id == committed_id(c, f.partition, f.version)
    ]
    newest = max(own, key=lambda f: f.version, default=None)
    # The store begins with its own newest snapshot, whatever bins come into it.
    has_left = newest is not None and newest.left is not None and newest.left[bin]
    return (*rows, LEFT_ROWS) if has_left and newest not in files else rows


def expected(c: Checkpoint, version: int) -> Content:
    """The content of a bin at a version: each epoch once, as the log of offsets has it."""
    return tuple(o.record for o in c.offsets[:version])


def retained(c: Checkpoint) -> range:
    return range(max(1, c.oldest), len(c.commits) + 1)


@lru_cache(REMEMBERED)
def needed(rules: Rules, c: Checkpoint, partition: int) -> frozenset[File] | None:
    """The files of a partition that any recovery of a retained version reads; `None` if one fails."""
    files: set[File] = set()
    versions = retained(c) if rules.has(Guard.RETAIN_ALL) else retained(c)[-1:]
    for version in versions:
        tables = owners(rules, c, named(rules, c, version - 1), version - 1)
        for bin in range(rules.bins):
            read = way(rules, c, tables, bin, version, any_id=not rules.has(Guard.RETAIN_COMMITTED))
            if read is None:
                return None
            if rules.has(Guard.RETENTION) or read[0].partition == partition:
                files.update(f for f in read if f.partition == partition)
    return frozenset(files)


@lru_cache(REMEMBERED)
def oldest_entry(rules: Rules, c: Checkpoint) -> Name | None:
    """The entry in force at the oldest version that is retained or has a file. None older is needed."""
    versions = [f.version for files in (c.changelogs, c.snapshots) for f in files]
    if not rules.has(Guard.ENTRIES_FOR_FILES):
        versions = []
    return named(rules, c, min([*versions, max(1, c.oldest)]) - 1)
