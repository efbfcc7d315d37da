"""Brings a partition to a version: snapshot, changelogs, and the switches between them.

The bins that a switch adopts and releases are in no changelog. So replaying the changelog of version V begins
with the switch at epoch V - 1, if there is one: leaving bins are removed, and arriving bins are read from their
old owners at version V - 1, which may have to be replayed in the same way.

Of an old owner, only what its bins need is read, because a cleanup keeps nothing else: not the changelogs from
before they came to it, and not where other bins came from.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from binshift.errors import StateFormatError
from binshift.inspect.decoding.schema import Operator, Store, is_read_in_order
from binshift.inspect.decoding.values import row_values
from binshift.inspect.facts import Facts, Settings
from binshift.inspect.storage.changelog import Changelog, Lineage
from binshift.inspect.storage.database import Database, Snapshot, successor

__all__ = ["BIN_BYTES", "Bins", "Partitions", "Place", "bin_of", "rows_of_bins"]

#: Bytes of a bin in a key.
BIN_BYTES = 2
_SNAPSHOT = re.compile(r"(\d+)(?:_(.+))?\.zip")
Bins = tuple[int, ...]
#: How many rows get new checksums at a time.
_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """A database of the checkpoint: a store of one partition of an operator."""

    operator: Operator
    store: Store
    partition: int

    @property
    def directory(self) -> str:
        """Its files in the checkpoint."""
        return self.store.directory(self.operator.id, partition=self.partition)

    def __str__(self) -> str:
        return f"operator {self.operator.id}, store {self.store.name}, partition {self.partition}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The files that make up a version: a snapshot, if any, and the changelogs to replay on top of it.

    If only some bins are wanted, which came after the snapshot, the changelogs before are `skipped`. The JVM
    doesn't read them either, but it looks whether they are there: only then does the snapshot say which column
    families the others have.
    """

    snapshot: str | None
    snapshot_version: int
    changelogs: tuple[tuple[int, str], ...]
    skipped: tuple[str, ...] = ()


class Partitions:
    """Puts partitions at versions together, each in a scratch directory. The last few are kept.

    Parameters
    ----------
    facts : Facts
    scratch : path
        Parent of the scratch directories, each of which is as large as its partition.
    keep : int
        How many partitions are kept open, for switches that read the same one.
    """

    def __init__(self, facts: Facts, scratch: Path, keep: int = 4) -> None:
        self._facts, self._scratch, self._keep = facts, scratch, keep
        self._open: OrderedDict[tuple[object, ...], Database] = OrderedDict()
        self._in_use: dict[int, int] = {}

    @contextlib.contextmanager
    def at(
        self, place: Place, version: int, settings: Settings, bins: Bins | None = None
    ) -> Iterator[Database]:
        """The rows of a partition at a version; valid while the context lasts.

        If `bins` are given, rows of other bins may be missing or wrong.

        Raises
        ------
        StateFormatError
            If files are missing or damaged.
        """
        key = (place.operator.id, place.store.name, place.partition, version, bins)
        database = self._open.pop(key, None) or self._made(place, version, settings, bins)
        self._open[key] = database
        self._in_use[id(database)] = self._in_use.get(id(database), 0) + 1
        try:
            yield database
        finally:
            self._in_use[id(database)] -= 1
            self._drop_idle(self._keep)

    def close(self) -> None:
        """Closes all databases and deletes the scratch directories."""
        self._drop_idle(0)

    def _drop_idle(self, keep: int) -> None:
        idle = [k for k, d in self._open.items() if not self._in_use.get(id(d))]
        for key in idle[: max(0, len(self._open) - keep)]:
            database = self._open.pop(key)
            self._in_use.pop(id(database), None)
            database.close()

    def _made(self, place: Place, version: int, settings: Settings, bins: Bins | None) -> Database:
        recipe = self.recipe(place, version, bins)
        arriving = self.arriving(place, recipe, version, bins)
        path = Path(tempfile.mkdtemp(prefix="partition-", dir=self._scratch))
        snapshot = Snapshot(self._facts.files, recipe.snapshot, path) if recipe.snapshot else None
        database = Database(path, snapshot, settings.delimiter, is_read_only=not recipe.changelogs)
        try:
            for v, file in recipe.changelogs:
                switch = self._facts.switch(v - 1, place.partition) if place.operator.is_binned else None
                if switch and not switch.is_new:
                    self._apply(place, v - 1, switch.leaving, arriving.get(v - 1, {}), settings, database)
                with self._facts.files.open(file) as stream:
                    database.apply(Changelog(stream, file).records(), settings.has_row_checksums)
        except BaseException:
            database.close()
            raise
        return database

    def arriving(
        self, place: Place, recipe: Recipe, version: int, bins: Bins | None = None
    ) -> dict[int, dict[int, Bins]]:
        """The bins that a recipe needs from old owners, by epoch and partition.

        Of an old owner, what it had of these bins at the version of that number is needed.
        """
        came = self._arrivals(place, recipe.snapshot_version, version, bins)
        found: dict[int, dict[int, Bins]] = {}
        for epoch in {v - 1 for v, _ in recipe.changelogs} & set(came.values()):
            switch = self._facts.switch(epoch, place.partition)
            if switch is not None and not switch.is_new:
                of = {
                    source: tuple(b for b in some if came.get(b) == epoch)
                    for source, some in switch.arriving.items()
                }
                found[epoch] = {source: some for source, some in of.items() if some}
        return found

    def _arrivals(self, place: Place, first: int, version: int, bins: Bins | None) -> dict[int, int]:
        """The epochs since `first` at which bins came that stay until `version`; only some, if given."""
        came: dict[int, int] = {}
        left: set[int] = set()
        wanted = None if bins is None else set(bins)
        if place.operator.is_binned:
            for epoch in range(version - 1, first - 1, -1):
                if came.keys() == wanted:
                    break  # The log may not reach back any further.
                if (switch := self._facts.switch(epoch, place.partition)) is not None:
                    left.update(b for b in switch.leaving if b not in came)
                    arriving = {b for of in switch.arriving.values() for b in of} - left
                    came = {**dict.fromkeys(arriving if wanted is None else arriving & wanted, epoch), **came}
        return came

    def recipe(self, place: Place, version: int, bins: Bins | None = None) -> Recipe:
        """The files that make up a version, or what it has of some bins.

        Raises
        ------
        StateFormatError
            If some are missing.
        """
        id = self._facts.ids.of(place.operator.id, place.partition, place.store.name, version)
        names = self._by_version(place, version) if id is None else self._by_lineage(place, version, id)
        there = self._facts.files.sizes(place.directory)
        snapshot, first = (f"{place.directory}/{names[0]}.zip", _version(names[0])) if names[0] else (None, 0)
        if bins is not None:
            came = self._arrivals(place, first, version, bins)
            first = min((came.get(b, first) for b in bins), default=version)
        since = [(_version(name), f"{name}.changelog") for name in names[1]]
        needed = [(v, name) for v, name in since if v > first]
        for v, name in needed:
            if name not in there:
                raise StateFormatError(
                    f"{place} cannot be read at version {version}: {place.directory}/{name} is missing, and "
                    f"there is no snapshot of version {v} or later; restore the file from a copy"
                )
        return Recipe(
            snapshot,
            first,
            tuple((v, f"{place.directory}/{name}") for v, name in needed),
            tuple(f"{place.directory}/{name}" for v, name in since if v <= first and name in there),
        )

    def rows_said(self, snapshot: str) -> tuple[int, dict[int, int] | None]:
        """The number of rows according to a snapshot, and that of each bin; -1 and None if it doesn't say.

        Raises
        ------
        StateFormatError
            If the snapshot is damaged.
        """
        path = Path(tempfile.mkdtemp(prefix="snapshot-", dir=self._scratch))
        try:
            said = Snapshot(self._facts.files, snapshot, path)
            return said.rows, said.rows_of_bins()
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _by_version(self, place: Place, version: int) -> tuple[str | None, list[str]]:
        """The newest snapshot, if there is one, and the changelogs since, without the ends of their names."""
        there = self._facts.files.sizes(place.directory)
        matches = (_SNAPSHOT.fullmatch(name) for name in there)
        snapshots = [int(m[1]) for m in matches if m and m[2] is None and int(m[1]) <= version]
        first = max(snapshots, default=0)
        return str(first) if first else None, [str(v) for v in range(first + 1, version + 1)]

    def _by_lineage(self, place: Place, version: int, id: str) -> tuple[str | None, list[str]]:
        """The same. Follows lineages back from the version's id, to a snapshot or to the beginning."""
        there = self._facts.files.sizes(place.directory)
        steps = [Lineage(version, id)]
        changelogs: list[str] = []
        while steps:
            step = steps.pop()
            name = f"{step.version}_{step.id}"
            if f"{name}.zip" in there:
                return name, changelogs[::-1]
            changelogs.append(name)
            path = f"{place.directory}/{name}.changelog"
            if not steps and step.version > 1 and f"{name}.changelog" in there:
                with self._facts.files.open(path) as stream:
                    steps = [s for s in Changelog(stream, path).lineage if s.version < step.version]
                if not steps or [s.version for s in steps] != list(range(steps[0].version, step.version)):
                    raise StateFormatError(f"{path} is damaged: its lineage has gaps; restore it from a copy")
        return None, changelogs[::-1]

    def _apply(
        self,
        place: Place,
        version: int,
        leaving: Bins,
        arriving: dict[int, Bins],
        settings: Settings,
        into: Database,
    ) -> None:
        # Changelogs may have been left out in which bins left that come back now.
        gone = (*leaving, *(b for bins in arriving.values() for b in bins))
        for family in _families(place.store, into):
            _drop(into, family, gone)
        for source, bins in sorted(arriving.items()):
            with self.at(Place(place.operator, place.store, source), version, settings, bins) as database:
                for family in _families(place.store, database):
                    _adopt(database, into, family, bins, settings)


def _version(name: str) -> int:
    """The version in the name of a file."""
    return int(name.partition("_")[0])


def _families(store: Store, database: Database) -> list[str]:
    return sorted(database.families) or [f.name for f in store.families]


def bin_of(key: bytes, is_behind: bool) -> int:
    """The bin of a key without its family's number."""
    return int.from_bytes(key[-BIN_BYTES:] if is_behind else key[:BIN_BYTES], "big")


def _bin_range(prefix: bytes, bin: int) -> tuple[bytes, bytes | None]:
    """The range of keys of a bin, in a family whose keys begin with the bin."""
    start = prefix + bin.to_bytes(BIN_BYTES, "big")
    return start, successor(start)


def _drop(database: Database, family: str, bins: tuple[int, ...]) -> None:
    prefix = database.prefix(family)
    if prefix is None or not bins:
        return
    if is_read_in_order(family):
        leaving = set(bins)
        for key, _ in database.rows(prefix, successor(prefix)):
            if bin_of(key, True) in leaving:
                database.put(key, None)
    else:
        for bin in bins:
            start, end = _bin_range(prefix, bin)
            database.delete_range(start, end or b"\xff" * 64)


def _adopt(source: Database, into: Database, family: str, bins: Bins, settings: Settings) -> None:
    prefix = source.prefix(family)
    if prefix is None:
        return
    target: bytes | None = None
    renewed: list[tuple[bytes, bytes]] = []
    for key, value in rows_of_bins(source, prefix, family, bins):
        if target is None:
            target = into.ensure_family(family) if source.families else b""
        if settings.has_row_checksums and target != prefix:
            renewed.append((target + key[len(prefix) :], value))
            if len(renewed) == _ROWS:
                _put_renewed(into, renewed, settings)
        else:
            into.put(target + key[len(prefix) :], value)
    _put_renewed(into, renewed, settings)


def rows_of_bins(
    database: Database, prefix: bytes, family: str, bins: Iterable[int]
) -> Iterator[tuple[bytes, bytes]]:
    """The stored rows of some bins in a family."""
    if is_read_in_order(family):
        wanted = set(bins)
        yield from (r for r in database.rows(prefix, successor(prefix)) if bin_of(r[0], True) in wanted)
    else:
        for bin in bins:
            yield from database.rows(*_bin_range(prefix, bin))


def _put_renewed(into: Database, rows: list[tuple[bytes, bytes]], settings: Settings) -> None:
    """Puts rows with new checksums. A row checksum covers the family's number, which is different here."""
    for key, value in rows:
        seed = google_crc32c.value(key)
        stored = [
            google_crc32c.extend(seed, v).to_bytes(4, "little") + len(v).to_bytes(4, "little") + v
            for v in row_values(value, settings.delimiter)
        ]
        into.put(key, settings.delimiter.join(stored))
    rows.clear()
