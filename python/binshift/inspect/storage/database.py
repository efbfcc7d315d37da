"""The rows of a partition at a version, in a RocksDB database in a scratch directory.

Spark's snapshot is opened as it is, with its SST files linked or copied. Later changes are written to the
scratch copy. So memory stays flat, and nothing in the checkpoint changes.
"""

from __future__ import annotations

import json
import logging
import lzma
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocksdict import AccessType, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from binshift.control.damage import NOT_UNDERSTOOD, damaged, plain_name
from binshift.control.failures import is_of_system, storage_error
from binshift.control.files import Files
from binshift.errors import BinshiftError, StateFormatError
from binshift.inspect.storage.changelog import Record, RecordKind

__all__ = ["Database", "Snapshot", "successor"]

_log = logging.getLogger("binshift")

#: Bytes of changes that are collected before they are written.
_BATCH_BYTES = 4 << 20
#: Bytes that RocksDB keeps in memory before it writes a file.
_BUFFER_BYTES = 16 << 20
#: More than the files of a snapshot have in all, apart from those with rows.
_ARCHIVE_BYTES = 1 << 30
#: RocksDB's options that name directories.
_ELSEWHERE = ("wal_dir=", "db_log_dir=", "db_paths=", "cf_paths=")


class Snapshot:
    """A snapshot's archive, and its files.

    Raises
    ------
    StateFormatError
        If the archive is damaged.
    """

    def __init__(self, files: Files, path: str, scratch: Path) -> None:
        self.path = path
        self._files, self._scratch = files, scratch
        archive = scratch / "snapshot.zip"
        files.fetch(path, archive)
        try:
            with zipfile.ZipFile(archive) as z:
                for name in z.namelist():
                    if name != "archive/":
                        plain_name(name.removeprefix("archive/"))
                if (size := sum(i.file_size for i in z.infolist())) > _ARCHIVE_BYTES:
                    raise ValueError(f"its files would have {size} bytes")
                z.extractall(scratch)
        except (
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            OSError,
            EOFError,
            RuntimeError,
            ValueError,
        ) as error:
            raise _failure(path, scratch, error, error) from error
        finally:
            archive.unlink(missing_ok=True)
        try:
            text = (scratch / "metadata").read_text()
            version, _, body = text.partition("\n")
            if version != "v1":
                raise StateFormatError(
                    f"{path} has metadata of the unknown format {version!r:.100}; use a newer binshift"
                )
            said = json.loads(body)
            #: Number of rows, including families that Spark keeps for itself; -1 if they were not counted.
            self.rows = int(said["numKeys"])
            if self.rows >= 0:
                self.rows += int(said.get("numInternalKeys") or 0)
            #: Numbers of the families by name; empty in a store without families.
            self.families = {str(k): int(v) for k, v in (said.get("columnFamilyMapping") or {}).items()}
            #: Files with rows: the local name, the name in the checkpoint, and the size in bytes.
            self.ssts = [
                (plain_name(f["localFileName"]), plain_name(f["dfsSstFileName"]), int(f["sizeBytes"]))
                for f in said["sstFiles"]
            ]
            self._logs = [
                (plain_name(str(f["localFileName"]).rpartition("/")[2]), plain_name(f["dfsLogFileName"]))
                for f in said.get("logFiles") or []
            ]
        except (OSError, *NOT_UNDERSTOOD) as error:
            raise _failure(path, scratch, error, error) from error

    @property
    def files(self) -> list[str]:
        """The files in the checkpoint that it consists of besides its archive, beginning with their folder."""
        return [f"SSTs/{name}" for _, name, _ in self.ssts] + [f"logs/{name}" for _, name in self._logs]

    def rows_of_bins(self) -> dict[int, int] | None:
        """The number of rows of each bin; None if the snapshot doesn't say, as those of Spark's own provider.

        Raises
        ------
        StateFormatError
            If the file that says so is damaged.
        """
        file = self._scratch / "binshift-rows.json"
        if not file.exists():
            return None
        rows: Counter[int] = Counter()
        try:
            said = json.loads(file.read_text())
            for numbers in (said["rows"], said["internal"]):
                rows.update({int(bin): int(count) for bin, count in numbers.items()})
        except NOT_UNDERSTOOD as error:
            raise damaged(f"{file.name} in {self.path}", error) from error
        return dict(rows)

    def fetch(self) -> None:
        """Fetches the files with rows.

        Raises
        ------
        StateFormatError
            If one is missing or has another size.
        """
        directory = self.path.rpartition("/")[0]
        for local, remote, size in self.ssts:
            target = self._scratch / local
            self._files.fetch(f"{directory}/SSTs/{remote}", target)
            if target.stat().st_size != size:
                raise StateFormatError(
                    f"{directory}/SSTs/{remote} has {target.stat().st_size} bytes and {self.path} says {size}; "
                    "restore it from a copy of the checkpoint"
                )
        for local, remote in self._logs:
            archived = self._scratch / "archive" / local
            archived.parent.mkdir(exist_ok=True)
            self._files.fetch(f"{directory}/logs/{remote}", archived)


class Database:
    """The stored rows. Keys begin with the number of their family if the store has families.

    Parameters
    ----------
    path : path
        An empty directory, which is deleted when the database is closed.
    snapshot : Snapshot, optional
        The snapshot to begin with, extracted into `path`.
    delimiter : bytes
        The bytes that Spark puts between the values of a key.
    is_read_only : bool
        Whether nothing will be changed.

    Raises
    ------
    StateFormatError
        If RocksDB can't open the snapshot. Methods raise it if RocksDB finds damage while it reads.
    """

    def __init__(self, path: Path, snapshot: Snapshot | None, delimiter: bytes, is_read_only: bool) -> None:
        self._path, self._delimiter = path, delimiter
        self.families = dict(snapshot.families) if snapshot else {}
        self._name = snapshot.path if snapshot else str(path)
        self._pending: dict[bytes, bytes | None] = {}
        self._pending_bytes = 0
        self._write = WriteOptions()
        # This is a property, although the stub says otherwise.
        self._write.disable_wal = True  # type: ignore[method-assign, assignment]
        try:
            if snapshot is None:
                options = Options(raw_mode=True)
                options.set_write_buffer_size(_BUFFER_BYTES)
                self._db = Rdict(str(path), options)
            else:
                snapshot.fetch()
                _name_delimiter(path, delimiter)
                options = Options.load_latest(str(path))[0]
                options.set_write_buffer_size(_BUFFER_BYTES)
                access = AccessType.read_only() if is_read_only else AccessType.read_write()
                self._db = Rdict(str(path), options, access_type=access)
        except BinshiftError:
            raise
        except Exception as error:  # rocksdict raises plain exceptions
            raise self._failure(error) from error

    def prefix(self, family: str) -> bytes | None:
        """The bytes that keys of a family begin with; None if the database has no such family."""
        if not self.families:
            return b""
        number = self.families.get(family)
        return None if number is None else number.to_bytes(2, "little", signed=True)

    def ensure_family(self, family: str) -> bytes:
        """The prefix of a family. A new family gets the next number, as in Spark."""
        if family not in self.families:
            self.families[family] = max(self.families.values(), default=-1) + 1
        return self.prefix(family) or b""

    def rows(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows from `start` (inclusive) to `end` (exclusive), in the order of keys."""
        self._flush()
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        try:
            iterator = self._db.iter(options)
            if start:
                iterator.seek(start)
            else:
                iterator.seek_to_first()
            valid, key, value, advance = iterator.valid, iterator.key, iterator.value, iterator.next
            while valid():
                yield key(), value()
                advance()
            iterator.status()
        except Exception as error:
            raise self._failure(error) from error

    def get(self, key: bytes) -> bytes | None:
        """One row's value."""
        if key in self._pending:
            return self._pending[key]
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._failure(error) from error
        return value

    def put(self, key: bytes, value: bytes | None) -> None:
        """Changes one row, or deletes it if there is no value."""
        self._pending[key] = value
        self._pending_bytes += len(key) + len(value or b"")
        if self._pending_bytes > _BATCH_BYTES:
            self._flush()

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Deletes the rows from `start` to before `end`."""
        self._flush()
        try:
            self._db.delete_range(start, end, self._write)
        except Exception as error:
            raise self._failure(error) from error

    def apply(self, records: Iterable[Record], has_row_checksums: bool) -> None:
        """Replays a changelog."""
        for kind, key, value in records:
            if kind is RecordKind.PUT:
                self.put(key, value)
            elif kind is RecordKind.DELETE:
                # With row checksums, the key of a deletion has a checksum, too.
                self.put(key[4:] if has_row_checksums else key, None)
            elif kind is RecordKind.MERGE:
                before = self.get(key)
                self.put(key, value if before is None else before + self._delimiter + value)
            else:
                self.delete_range(key, value[8:] if has_row_checksums else value)

    def close(self) -> None:
        """Closes the database and deletes its directory.

        RocksDB raises here if it met damage in the background, in a compaction that it began by itself. Readers
        of the damaged rows get an error of their own, and nothing of this copy is kept, so this one is only
        logged.
        """
        try:
            self._db.close()
        except Exception as error:  # rocksdict raises plain exceptions
            _log.debug("RocksDB met damage in %s in the background: %s", self._name, error)
        finally:
            shutil.rmtree(self._path, ignore_errors=True)

    def _flush(self) -> None:
        if self._pending:
            batch = WriteBatch(raw_mode=True)
            for key, value in self._pending.items():
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            try:
                self._db.write(batch, self._write)
            except Exception as error:
                raise self._failure(error) from error
            self._pending, self._pending_bytes = {}, 0

    def _failure(self, error: Exception) -> BinshiftError:
        return _failure(self._name, self._path, error, f"RocksDB cannot read it ({error})")


def _failure(path: str, scratch: Path, error: Exception, reason: object) -> BinshiftError:
    """The error for a damaged file, or for a system that has no room for its copy or can't read it."""
    return storage_error("use", str(scratch), error) if is_of_system(error) else damaged(path, reason)


def _name_delimiter(path: Path, delimiter: bytes) -> None:
    """Adapts a snapshot's options to this process.

    They name the merge operator, but RocksDB doesn't write down that its delimiter is empty. They also name
    directories, to which this process must not write.
    """
    for options in path.glob("OPTIONS-*"):
        text = "\n".join(x for x in options.read_text().splitlines() if not x.strip().startswith(_ELSEWHERE))
        named = f"merge_operator={{id=StringAppendOperator;delimiter={delimiter.decode()};}}"
        lines = (
            f"  {named}" if line.strip().startswith("merge_operator=") and "StringAppend" in line else line
            for line in text.splitlines()
        )
        options.write_text("\n".join(lines) + "\n")


def successor(prefix: bytes) -> bytes | None:
    """The smallest key that is greater than all keys that begin with `prefix`; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
