"""A checkpoint as the events of a life have made it, and how the model sees it: for each store, bin by bin.

What happens to one bin doesn't depend on others, so each is a small life of its own, in which a routing table
is the one owner. Bins that always had the same owner are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from model.recovery import Owners, first_entry, named, owners
from model.rules import Rules
from model.state import Changelog, Checkpoint, Claim, Content, Entry, Name, Offset, PerBin, Snapshot
from traces.events import Store, VersionFile

#: Stands for the record if the attempt wasn't committed.
OF_ANOTHER_ATTEMPT = -1
#: Stands for an epoch that Spark's own provider ran.
STOCK = 0
MANY = 1 << 60


class Made(NamedTuple):
    """The change of a bin by an epoch, with the attempt that made it."""

    record: int
    partition: int
    version: int
    id: str | None


Rows = tuple[Made, ...]


@dataclass(frozen=True)
class Table:
    """A routing entry, as it was written."""

    name: str
    previous: str | None
    run: str
    partitions: int
    owners: tuple[int, ...]
    step: tuple[str, int] | None = None  # Of which migration, and which of its steps.

    @property
    def epoch(self) -> int:
        return int(self.name.split(":")[0])


@dataclass
class Log:
    """The entries of an epoch in Spark's logs."""

    record: int
    named: str | None
    partitions: int
    ids: dict[int, list[list[str]]] | None = None  # With which it was committed, by operator.


@dataclass(frozen=True)
class Place:
    """A claim."""

    number: int
    run: str
    epoch: int
    record: int
    entry: str


@dataclass
class History:
    """The files of a checkpoint, as far as the events have told."""

    format: int
    bins: int
    retained: int
    taken_over_at: int = 0
    tables: dict[str, Table] = field(default_factory=dict)
    #: The entries that exist.
    entries: set[str] = field(default_factory=set)
    offsets: list[Log] = field(default_factory=list)
    commits: int = 0
    claims: list[Place] = field(default_factory=list)
    changelogs: dict[VersionFile, int] = field(default_factory=dict)
    snapshots: dict[VersionFile, dict[int, Rows]] = field(default_factory=dict)
    oldest: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    migrations: dict[str, int] = field(default_factory=dict)
    _rules: dict[int, Rules] = field(default_factory=dict)
    _names: dict[tuple[str, int], Name] = field(default_factory=dict)
    _seen: dict[tuple[Store | None, int], tuple[tuple[int, int], Checkpoint]] = field(default_factory=dict)
    _in_force: dict[int, str | None] = field(default_factory=dict)
    _logs: int = 0
    _files: int = 0

    def changed(self) -> None:
        """The logs have, or the entries."""
        self._logs += 1
        self._in_force.clear()

    def files_changed(self) -> None:
        self._files += 1

    def rules(self, bin: int) -> Rules:
        if bin not in self._rules:
            first = next(iter(self.tables.values()))
            partitions = max(t.partitions for t in self.tables.values())
            self._rules[bin] = Rules(
                first=PerBin((first.owners[bin],)),
                plans=(),
                partitions=partitions,
                epochs=MANY,
                format=self.format,
                retained=self.retained,
            )
        return self._rules[bin]

    def forget_rules(self) -> None:
        """There is a table with more partitions, or another first one."""
        self._rules.clear()
        self.changed()

    def run(self, id: str) -> int:
        return self.runs.setdefault(id, len(self.runs))

    def migration(self, id: str) -> int:
        return self.migrations.setdefault(id, len(self.migrations))

    def name(self, entry: str, bin: int) -> Name:
        if (entry, bin) not in self._names:
            epoch, checksum = entry.split(":")
            owner = self.tables[entry].owners[bin] if entry in self.tables else -1
            self._names[entry, bin] = Name(int(epoch), int(checksum, 16), PerBin((owner,)))
        return self._names[entry, bin]

    def entry_of(self, name: Name) -> str:
        return f"{name.epoch}:{name.run:08x}"

    def named(self, epoch: int) -> str | None:
        """The entry that is in force at an epoch, as the model finds it."""
        if self.tables and epoch not in self._in_force:
            rules, c = self.rules(0), self.checkpoint(None, 0)
            found = named(rules, c, epoch)
            self._in_force[epoch] = None if found == first_entry(rules) else self.entry_of(found)
        return self._in_force.get(epoch)

    def tables_at(self, version: int, bin: int, store: Store | None = None) -> Owners:
        rules, c = self.rules(bin), self.checkpoint(store, bin)
        return owners(rules, c, named(rules, c, version), version)

    def table(self, version: int) -> Table | None:
        """The table by which the epoch `version` runs."""
        entry = self.named(version)
        return None if entry is None else self.tables.get(entry)

    def before(self, table: Table) -> Table | None:
        return self.tables.get(table.previous) if table.previous else None

    def classes(self, of: Sequence[int]) -> Iterator[list[int]]:
        """The bins, those together that always had the same owner."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for bin in of:
            alike.setdefault(tuple(t.owners[bin] for t in self.tables.values()), []).append(bin)
        yield from alike.values()

    def committed_id(self, store: Store, version: int) -> str | None:
        """Under checkpoint format 2, the id with which a version of a store counts."""
        if not 0 < version <= self.commits or self.format == 1:
            return None
        ids = (self.offsets[version - 1].ids or {}).get(store.operator, [])
        if store.partition >= len(ids):
            return None
        of = ids[store.partition]
        return of[_position(store.name)] if len(of) > 1 else of[0]

    def resolved(self, store: Store, rows: Rows) -> Content:
        """The content of a bin, in the model's terms."""
        return tuple(
            m.record
            if self.format == 1 or m.id == self.committed_id(store.peer(m.partition), m.version)
            else OF_ANOTHER_ATTEMPT
            for m in rows
        )

    def checkpoint(self, store: Store | None, bin: int) -> Checkpoint:
        """The model's view of one bin, in the stores with one operator and name; no files for no store."""
        of = None if store is None else store.peer(0)
        now = (self._logs, 0 if of is None else self._files)
        seen = self._seen.get((of, bin))
        if seen is None or seen[0] != now:
            seen = self._seen[of, bin] = (now, self._checkpoint(of, bin))
        return seen[1]

    def _checkpoint(self, of: Store | None, bin: int) -> Checkpoint:
        def is_of(file: VersionFile) -> bool:
            return of is not None and file.store.peer(0) == of

        partitions = range(self.rules(bin).partitions)
        return Checkpoint(
            offsets=tuple(
                Offset(o.record, None, None if o.named is None else self.name(o.named, bin), 1)
                for o in self.offsets
            ),
            commits=tuple(
                tuple(None if of is None else self.committed_id(of.peer(p), v + 1) for p in partitions)  # type: ignore[misc]
                for v in range(self.commits)
            ),
            claims=tuple(
                Claim(c.number, self.run(c.run), c.epoch, c.record, self.name(c.entry, bin), 0)
                for c in self.claims[-20:]
            ),
            entries=frozenset(self._entry(self.tables[e], bin) for e in self.entries),
            changelogs=frozenset(
                Changelog(f.store.partition, f.version, f.id, record, PerBin((True,)), record)  # type: ignore[arg-type]
                for f, record in self.changelogs.items()
                if is_of(f)
            ),
            snapshots=frozenset(
                Snapshot(
                    f.store.partition,
                    f.version,
                    f.id,  # type: ignore[arg-type]
                    PerBin((self.resolved(f.store, rows[bin]) if bin in rows else None,)),
                    None,
                )
                for f, rows in self.snapshots.items()
                if is_of(f)
            ),
            plans=(),
            winds=0,
            oldest=max(self.oldest, self.taken_over_at + 1),
        )

    def _entry(self, table: Table, bin: int) -> Entry:
        previous = None if table.previous is None else self.name(table.previous, bin)
        step = None if table.step is None else (self.migration(table.step[0]), table.step[1])
        return Entry(self.name(table.name, bin), previous, step)


#: The stores of a join, in the order in which Spark lists their ids.
_JOIN = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)


def _position(name: str) -> int:
    return _JOIN.index(name) if name in _JOIN else 0
