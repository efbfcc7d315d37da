"""A checkpoint, opened to be read."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from binshift.arguments import checked
from binshift.control.directory import ControlDir
from binshift.control.files import Files
from binshift.control.history import history_table
from binshift.errors import ConfigurationError, impossible
from binshift.inspect.decoding.schema import Operator
from binshift.inspect.facts import Facts, Settings
from binshift.inspect.lookup import bin_of_key, encoded_key, equal_to
from binshift.inspect.source import BATCH_ROWS, Source, decoded, stored_row, stored_rows
from binshift.inspect.storage.database import Database
from binshift.inspect.storage.partition import Partitions, Place
from binshift.numbers import is_whole
from binshift.planning.routing import RoutingTable
from binshift.session import STOCK_PROVIDER

__all__ = ["Checkpoint", "open"]


@checked(ConfigurationError)
def open(
    checkpoint: str | os.PathLike[str],
    *,
    filesystem: fs.FileSystem | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> Checkpoint:
    """Opens a checkpoint of binshift's or Spark's RocksDB provider, without a JVM, for reading only.

    The query may be running. Files that it purges meanwhile are reported as missing.

    Parameters
    ----------
    checkpoint : str or path
        The query's `checkpointLocation`: a path, or a URI that pyarrow knows (`s3://`, `gs://`, `hdfs://`, …).
    filesystem : pyarrow.fs.FileSystem, optional
        The file system of the path `checkpoint`, if a URI can't describe it.
    scratch : str or path, optional
        A directory in which partitions are put together: one at a time, and some that its bins come from. It
        needs room for about four partitions. The default is the system's temporary directory.

    Returns
    -------
    Checkpoint
        Close it when you are done, or use it in a `with` statement.

    Raises
    ------
    ConfigurationError
        If it is no checkpoint, or another provider wrote it.
    """
    return Checkpoint(Files(checkpoint, filesystem), scratch)


@checked(ConfigurationError, but=("files",))
class Checkpoint:
    """Reads a checkpoint; made by `open`. Not thread-safe.

    Names that begin with an underscore are for the tools of this package.
    """

    def __init__(self, files: Files, scratch: str | os.PathLike[str] | None = None) -> None:
        self._facts = Facts(files)
        self._scratch = Path(tempfile.mkdtemp(prefix="binshift-inspect-", dir=scratch))
        self._partitions = Partitions(self._facts, self._scratch)

    def __repr__(self) -> str:
        return f"<Checkpoint {self._facts.files.name}>"

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Deletes the partitions that were put together."""
        self._partitions.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that the checkpoint names, ascending; version V is what batch V - 1 committed."""
        return self._facts.versions

    def operators(self, version: int | None = None) -> tuple[Operator, ...]:
        """The stateful operators with their stores and families."""
        return self._facts.operators(self._facts.require_version(version))

    def routing(self, version: int | None = None) -> RoutingTable | None:
        """The routing table with which a version was committed; none without bins."""
        epoch = self._facts.require_version(version) - 1
        return self._facts.table(epoch) if self._facts.is_binned_at(epoch) else None

    def history(self) -> pa.Table:
        """A row for each step that took effect; the columns are those of `Controller.history`."""
        steps = ControlDir(self._facts.files).steps()
        return history_table(s for s in steps if s["committed"])

    def sources(
        self,
        *,
        operator: int | None = None,
        store: str | None = None,
        family: str | None = None,
        version: int | None = None,
    ) -> list[Source]:
        """All sources, or those that the arguments select."""
        at = self._facts.require_version(version)
        return [
            Source(o, store=s, family=f, version=at)
            for o in self._facts.operators(at)
            if operator in (None, o.id)
            for s in o.stores
            if store in (None, s.name)
            for f in s.families
            if family in (None, f.name)
        ]

    def source(
        self,
        *,
        operator: int | None = None,
        store: str | None = None,
        family: str | None = None,
        version: int | None = None,
    ) -> Source:
        """The source that the arguments select.

        Raises
        ------
        ConfigurationError
            If they select none, or several.
        """
        found = self.sources(operator=operator, store=store, family=family, version=version)
        # Every store with families has one called default, which operators with other families don't use.
        named = found if family or len(found) == 1 else [s for s in found if not s.is_unused]
        if len(named) == 1:
            return named[0]
        choices = named or self.sources(version=version)
        if not choices:
            raise ConfigurationError(
                f"the query of {self._facts.files.name} has no state that could be read",
                condition="SOURCE_NOT_FOUND",
                operator=operator,
                store=store,
                family=family,
            )
        raise ConfigurationError(
            f"{'several things fit' if named else 'nothing fits'}; name one of: {'; '.join(map(str, choices))}",
            condition="SOURCE_AMBIGUOUS" if named else "SOURCE_NOT_FOUND",
            operator=operator,
            store=store,
            family=family,
        )

    def scan(
        self,
        source: Source | None = None,
        *,
        operator: int | None = None,
        store: str | None = None,
        family: str | None = None,
        version: int | None = None,
        bins: Iterable[int] | None = None,
        partitions: Iterable[int] | None = None,
        where: pc.Expression | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> pa.RecordBatchReader:
        """Rows of a family, partition by partition and within it in the order of bins.

        It needs memory for a batch and for RocksDB's buffers, whatever the size of the state.

        Parameters
        ----------
        source : Source, optional
            What to read. You can also name it by `operator`, `store`, `family` and `version`.
        bins, partitions : iterable of int, optional
            Read only these; other partitions are not even opened.
        where : pyarrow.compute.Expression, optional
            Keeps only the rows for which it holds, such as `pc.field("key", "k") == "key7"`.
        batch_rows : int
            The largest number of rows of a batch, at least 1.

        Returns
        -------
        pyarrow.RecordBatchReader
            Columns partition, bin, key and value; a key with a list of values has a row for each.

        Raises
        ------
        ConfigurationError
            If a bin, partition or version does not exist, or if `batch_rows` is impossible.
        StateFormatError
            If state is damaged. The reader may raise this as well.
        """
        if not is_whole(batch_rows, 1):
            raise impossible(ConfigurationError, "batch_rows", batch_rows, "a whole number of at least 1")
        chosen = source or self.source(operator=operator, store=store, family=family, version=version)
        wanted = self._require_bins(bins, chosen.version)
        places = self._places(chosen, bins=wanted, partitions=partitions)

        def batches() -> Iterator[pa.RecordBatch]:
            for place in places:
                for batch in self._batches(chosen, place, wanted, batch_rows):
                    kept = batch if where is None else _filtered(batch, where)
                    if kept.num_rows:
                        yield kept

        return pa.RecordBatchReader.from_batches(chosen.schema, batches())

    def head(self, n: int = 10, **kwargs: Any) -> pa.Table:
        """The first `n` rows that `scan` with the same arguments would return."""
        taken: list[pa.RecordBatch] = []
        left = n
        reader = self.scan(**{"batch_rows": max(1, min(n, BATCH_ROWS)), **kwargs})
        while left > 0 and (batch := next(reader, None)) is not None:
            taken.append(batch.slice(0, left))
            left -= taken[-1].num_rows
        return pa.Table.from_batches(taken, reader.schema)

    def lookup(self, key: Mapping[str, Any], *, source: Source | None = None, **kwargs: Any) -> pa.Table:
        """The rows of a key.

        With a whole key, it reads one row of the partition that owns the key, or scans the key's bin if keys
        have several parts. It does the latter, too, if you give all columns by which Spark distributes rows.
        With fewer columns, it scans everything.

        Parameters
        ----------
        key : mapping
            Values of all or some columns of the key; structs as mappings.
        source : Source, optional
            What to read, or name it as for `scan`.
        """
        chosen = source or self.source(**kwargs)
        stored = encoded_key(key, chosen.family, self._facts.settings(chosen.version).encoding)
        # If a key has changed on its way, several partitions may have state of it, in any bin.
        keys_change = self._facts.keys_change(chosen.operator.id)
        if stored is None or keys_change:
            bin = self._bin_of(key, chosen) if chosen.operator.is_binned and not keys_change else None
            where = equal_to(key, chosen.family)
            return self.scan(chosen, bins=None if bin is None else [bin], where=where).read_all()
        for place, bin in self._homes(key, chosen):
            with self._database(chosen, place) as (database, settings):
                rows = stored_row(chosen, database, settings, stored, bin)
                if rows:
                    return pa.Table.from_batches([decoded(chosen, place.partition, rows, settings)])
        return chosen.schema.empty_table()

    def _homes(self, key: Mapping[str, Any], source: Source) -> Iterator[tuple[Place, int | None]]:
        """The places where a key can be, likeliest first."""
        if source.operator.is_binned:
            table = self._facts.table(source.version - 1)
            bin = self._bin_of(key, source)
            bins = range(table.bins) if bin is None else [bin]
            yield from ((Place(source.operator, source.store, table.assignment[b]), b) for b in bins)
            return
        # Without bins, what Spark distributes by may be fewer columns than the key has.
        places = self._places(source)
        likely = bin_of_key(key, source.store, source.family, len(places)) if places else 0
        yield from ((p, None) for p in sorted(places, key=lambda p: p.partition != likely))

    def _bin_of(self, key: Mapping[str, Any], source: Source) -> int | None:
        return bin_of_key(key, source.store, source.family, self._facts.bins or 1)

    def _places(
        self, source: Source, *, bins: Iterable[int] | None = None, partitions: Iterable[int] | None = None
    ) -> list[Place]:
        """The databases that hold a source, or these bins of it.

        Raises
        ------
        ConfigurationError
            If a partition does not exist.
        """
        if source.operator.is_binned:
            assignment = self._facts.table(source.version - 1).assignment
        there = self._facts.partitions(source.operator, source.version)
        wanted = set(there) if partitions is None else set(partitions)
        if not wanted <= set(there):
            absent = min(wanted - set(there))
            raise ConfigurationError(
                f"partition {absent} does not exist at version {source.version}, which has partitions 0 to "
                f"{len(there) - 1}",
                condition="INVALID_VALUE",
                name="partitions",
                value=absent,
            )
        if bins is not None and source.operator.is_binned:
            wanted &= {assignment[b] for b in bins}
        return [Place(source.operator, source.store, p) for p in sorted(wanted)]

    @contextlib.contextmanager
    def _database(self, source: Source, place: Place) -> Iterator[tuple[Database, Settings]]:
        """The stored rows of a partition; valid while the context lasts."""
        settings = self._facts.settings(source.version)
        with self._partitions.at(place, source.version, settings) as database:
            yield database, settings

    def _batches(
        self, source: Source, place: Place, bins: list[int] | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        with self._database(source, place) as (database, settings):
            for rows in stored_rows(source, database, settings, bins, batch_rows):
                batch = decoded(source, place.partition, rows, settings)
                for at in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(at, batch_rows)

    def _require_bins(self, bins: Iterable[int] | None, version: int) -> list[int] | None:
        if bins is None:
            return None
        if self._facts.bins is None or not self._facts.is_binned_at(version - 1):
            raise ConfigurationError(
                f"version {version} of {self._facts.files.name} is of Spark's own provider and has no bins; "
                "name partitions",
                condition="CHECKPOINT_WITHOUT_BINS",
                checkpoint=self._facts.files.name,
                provider=STOCK_PROVIDER,
            )
        wanted = sorted(set(bins))
        if wanted and not 0 <= wanted[0] <= wanted[-1] < self._facts.bins:
            raise ConfigurationError(
                f"bins {wanted} do not all exist; bins are 0 to {self._facts.bins - 1}",
                condition="INVALID_VALUE",
                name="bins",
                value=tuple(wanted),
            )
        return wanted


def _filtered(batch: pa.RecordBatch, where: pc.Expression) -> pa.RecordBatch:
    batches = pa.Table.from_batches([batch]).filter(where).combine_chunks().to_batches()
    return batches[0] if batches else batch.slice(0, 0)
