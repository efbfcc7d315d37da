"""Which entry is in force, who owned what, and what a recovery reads: pure functions of the files.

What a recovery reads is also all that retention keeps (`needed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from model.rules import Guard, Rules
from model.state import Changelog, Content, Entry, Id, Name, Snapshot, State, Table


def named(rules: Rules, s: State, epoch: int) -> Name | None:
    """The entry in force at an epoch: along the chain from the newest one that the logs name.

    Not from the newest name up to the epoch: the claims that named entries for first epochs of runs long ago may be gone.
    """
    name = newest_name(rules, s)
    while name is not None and name.epoch > epoch:
        entry = entry_of(s, name)
        name = None if entry is None else entry.previous
    return name


def newest_name(rules: Rules, s: State) -> Name | None:
    """By the log of offsets or, for the first epoch of a run, by a claim for the epoch as it is logged."""
    for epoch in range(len(s.offsets) - 1, -1, -1):
        offset = s.offsets[epoch]
        if offset.entry is not None:
            return offset.entry
        for claim in reversed(s.claims):
            if claim.epoch == epoch and claim.record == offset.record and entry_of(s, claim.entry) is not None:
                return claim.entry
    return None


def entry_of(s: State, name: Name) -> Entry | None:
    return next((e for e in s.entries if e.name == name), None)


Owners = tuple[tuple[int, Table], ...]
"""Tables by the epoch from which they are in force, the newest first."""


def owners(rules: Rules, s: State, name: Name | None, epoch: int) -> Owners | None:
    """Along the chain from an entry; `None` if it is broken."""
    if not rules.has(Guard.CHAIN):
        return tuple((e.name.epoch, e.name.table) for e in sorted(s.entries, reverse=True) if e.name.epoch <= epoch) or None
    found = []
    while name is not None:
        entry = entry_of(s, name)
        if entry is None:
            return None
        found.append((name.epoch, name.table))
        name = entry.previous
    return tuple(found) or None


def table_at(tables: Owners, epoch: int) -> Table:
    return next(table for since, table in tables if since <= epoch)


def ids_of(s: State, version: int) -> tuple[Id, ...] | None:
    return s.commits[version - 1] if 0 < version <= len(s.commits) else None


Way = list[Changelog | Snapshot]


def way(rules: Rules, s: State, tables: Owners, bin: int, version: int, *, any_id: bool = False) -> Way | None:
    """The files that a recovery of a bin reads, the newest first; `None` if one is missing.

    The base is the newest snapshot of whoever owned the bin at the snapshot's version. Then comes one changelog per version.
    """
    files: Way = []
    while version > 0:
        owner = table_at(tables, version - 1)[bin]
        committed = ids_of(s, version)
        wanted = committed[owner] if committed is not None and owner < len(committed) else None
        base = next((f for f in s.snapshots if f.partition == owner and f.version == version and (any_id or f.id == wanted)), None)
        if base is not None:
            return [*files, base]
        if not rules.has(Guard.BASE_SINCE_ARRIVAL):
            older = [f for f in s.snapshots if f.partition == owner and f.version < version and f.content[bin] is not None]
            if older and table_at(tables, version - 2 if version > 1 else 0)[bin] != owner:
                return [*files, max(older, key=lambda f: f.version)]
        change = next((f for f in s.changelogs if f.partition == owner and f.version == version and f.id == wanted), None)
        if change is None:
            return None
        files.append(change)
        version -= 1
    return files


def content(files: Way, bin: int) -> Content | None:
    """What a bin holds once its files were read, the newest of which comes first."""
    rows: Content | None = ()
    for file in reversed(files):
        if isinstance(file, Snapshot):
            rows = file.content[bin]
        elif rows is not None and file.bins[bin]:
            rows = (*rows, file.record)
    return rows


def recovered(rules: Rules, s: State, tables: Owners, bin: int, version: int) -> Content | None:
    files = way(rules, s, tables, bin, version, any_id=not rules.has(Guard.COMMITTED_BASE))
    return None if files is None else content(files, bin)


def expected(s: State, version: int) -> Content:
    """What a bin holds at a version: each epoch once, as the log of offsets has it."""
    return tuple(o.record for o in s.offsets[:version])


def retained(rules: Rules, s: State) -> Iterable[int]:
    return range(s.floor, len(s.commits) + 1)


def needed(rules: Rules, s: State, partition: int) -> frozenset[tuple[str, int, Id]]:
    """The files of a partition that a recovery of any bin at any retained version reads."""
    return frozenset(_needed(rules, s, partition))


def _needed(rules: Rules, s: State, partition: int) -> Iterator[tuple[str, int, Id]]:
    versions = list(retained(rules, s))
    for version in versions if rules.has(Guard.RETAIN_ALL) else versions[-1:]:
        tables = owners(rules, s, named(rules, s, version - 1), version - 1)
        if version == 0 or tables is None:
            continue
        for bin in range(rules.bins):
            if not rules.has(Guard.RETENTION) and table_at(tables, version - 1)[bin] != partition:
                continue
            for file in way(rules, s, tables, bin, version, any_id=not rules.has(Guard.RETAIN_COMMITTED)) or ():
                if file.partition == partition:
                    yield key(file)


def key(file: Changelog | Snapshot) -> tuple[str, int, Id]:
    """The name of a file in its store's directory."""
    return ("snapshot" if isinstance(file, Snapshot) else "changelog", file.version, file.id)
