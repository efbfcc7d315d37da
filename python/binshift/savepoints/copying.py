"""Makes a checkpoint of its own from a savepoint."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

from pyarrow import fs

from binshift.arguments import checked
from binshift.control.damage import understood
from binshift.control.directory import checked_layout
from binshift.control.files import Files
from binshift.control.savepoints import KeptFile, Savepoint, Savepoints
from binshift.errors import ConfigurationError, StateFormatError, impossible
from binshift.inspect.storage.checksums import checksum_names
from binshift.savepoints.making import create, drop
from binshift.savepoints.needed import ListedOnce, in_parallel, kept_file
from binshift.savepoints.rewriting import Rewriting, number_of

__all__ = ["Copy", "export_to", "fork"]

#: A copy that didn't end leaves this file in its target, and no query runs there (`ControlDir.scala`). So the
#: next copy may replace everything else.
_MARKER = "binshift-copy.json"
#: Written first, and written last, in this order: Spark, too, takes half a copy neither for the checkpoint of a
#: new query nor for a whole one.
_FIRST = ("offsets/",)
_LAST = ("commits/", "metadata")
#: Why a file can't be linked, though it can be copied.
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK}
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Copy:
    """A checkpoint that was made from a savepoint.

    Parameters
    ----------
    checkpoint : str
        Where it is.
    epoch : int
        The last committed epoch. A query that starts from it goes on with the next one.
    files : int
    bytes : int
    linked : int
        How many of the files share their bytes on disk with those of the original checkpoint.
    """

    checkpoint: str
    epoch: int
    files: int
    bytes: int
    linked: int


@checked(ConfigurationError)
def fork(
    checkpoint: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    savepoint: str | None = None,
    epoch: int | None = None,
    drop_operators: Collection[int] = (),
) -> Copy:
    """Makes a checkpoint from which another query can run while the query of this one goes on.

    The new query has an id and a history of its own. On a local disk, the two checkpoints share the bytes of
    state (hard links); on an object store, the store copies them. Neither query notices what the other deletes.

    Parameters
    ----------
    checkpoint : str or path
    target : str or path
        The new checkpoint: a path or URI where nothing is yet.
    savepoint : str, optional
        What to begin with; by default the newest committed epoch.
    epoch : int, optional
        Another epoch to begin with, which must still be retained.
    drop_operators : collection of int
        Numbers of stateful operators that the new query no longer has. Those after them get other numbers, as
        they do in the plan of the new query.

    Raises
    ------
    ConfigurationError
        If there is no such savepoint, epoch or operator, or the target exists.
    StateFormatError
        If files are missing, or were replaced since the savepoint was made.
    """
    if savepoint is not None and epoch is not None:
        raise impossible(ConfigurationError, "epoch", epoch, "either a savepoint or an epoch")
    with _at(checkpoint, savepoint, epoch) as (files, found):
        return _Copying(files, found, Files(target), drop_operators).run(id_=str(uuid4()), verifies=False)


@checked(ConfigurationError)
def export_to(checkpoint: str | os.PathLike[str], savepoint: str, target: str | os.PathLike[str]) -> Copy:
    """Copies a savepoint to another place, as a backup: a checkpoint with the same query id.

    Each file is read again from the target, and has to have the checksum of what was read from the source.

    Raises
    ------
    ConfigurationError
        If there is no such savepoint, or the target exists.
    StateFormatError
        If files are missing, were replaced since the savepoint was made, or arrived with other content.
    """
    with _at(checkpoint, savepoint, None) as (files, found):
        return _Copying(files, found, Files(target)).run(id_=None, verifies=True)


@contextmanager
def _at(
    checkpoint: str | os.PathLike[str], name: str | None, epoch: int | None
) -> Iterator[tuple[Files, Savepoint]]:
    """A savepoint that stays as long as the context lasts; one for the time being, if no name is given."""
    files = Files(checkpoint)
    if name is not None:
        yield files, Savepoints(files).get(name)
        return
    made = create(checkpoint, f"fork-{uuid4()}", epoch=epoch)
    try:
        yield files, made
    finally:
        with suppress(ConfigurationError):
            drop(checkpoint, made.name)


class _Copying:
    """Copies a savepoint to a target, which must be empty, or have been left by a copy that was cut short."""

    def __init__(
        self, source: Files, savepoint: Savepoint, target: Files, drop_operators: Collection[int] = ()
    ) -> None:
        self._source, self._savepoint, self._target = ListedOnce(source), savepoint, target
        self._rewriting = Rewriting(self._source, target, self._operators(), drop_operators)
        #: Tells this copy from others to the same target.
        self._id = str(uuid4())
        self._is_same = source.filesystem.equals(target.filesystem)
        self._is_local = isinstance(source.filesystem, fs.LocalFileSystem)

    def run(self, id_: str | None, *, verifies: bool) -> Copy:
        """Copies; under a new query id if one is given."""
        self._clear()
        state = dict(self._state())
        small = [path for path in self._savepoint.copies if self._rewriting.path(path) is not None]
        self._make_folders({self._to(path).rpartition("/")[0] for path in (*state, *small)})
        self._copy_small([p for p in small if p.startswith(_FIRST)], verifies=verifies)
        linked = sum(in_parallel(lambda path: self._bring(path, verifies=verifies), state))
        self._copy_small([p for p in small if not p.startswith((*_FIRST, *_LAST))], verifies=verifies)
        self._require_own()
        self._copy_small([p for p in small if p.startswith(_LAST[0])], verifies=verifies)
        self._forget_refused()
        if id_ is None:
            self._copy_small(["metadata"], verifies=verifies)
        else:
            self._target.write("metadata", json.dumps({"id": id_}).encode())
        self._require_own()
        self._target.delete(_MARKER)
        sizes = sum(kept.bytes for kept in state.values())
        return Copy(self._target.name, self._savepoint.epoch, len(state) + len(small), sizes, linked)

    def _clear(self) -> None:
        """Leaves nothing in the target but the marker: what a copy has linked must not be written over."""
        there = {*self._target.sizes(""), *self._target.directories("")}
        # If a copy ended while it wrote the marker, the file has its hidden name yet.
        if there - {f".{_MARKER}"} and _MARKER not in there:
            raise ConfigurationError(
                f"the target {self._target.name} exists and is not empty; name another directory",
                condition="OUTPUT_NOT_EMPTY",
                output=self._target.name,
            )
        self._target.write(_MARKER, json.dumps({"savepoint": self._savepoint.name, "copy": self._id}).encode())
        for name in self._target.directories(""):
            with self._target.reaching("delete", name):
                self._target.filesystem.delete_dir(self._target.path(name))
        for name in self._target.sizes("").keys() - {_MARKER}:
            with self._target.reaching("delete", name):
                self._target.filesystem.delete_file(self._target.path(name))

    def _require_own(self) -> None:
        """Raises if another copy to the same target has begun since, and has deleted what this one had made."""
        marker = self._target.find(_MARKER)
        if marker is None or json.loads(marker).get("copy") != self._id:
            raise ConfigurationError(
                f"something else copies to {self._target.name} as well, and began later; leave it to that, or "
                "name another target",
                condition="OUTPUT_TAKEN",
                output=self._target.name,
            )

    def _forget_refused(self) -> None:
        """Deletes what a query has left that was started meanwhile and refused: logs, and checksums."""
        copies = set(self._savepoint.copies)
        for log in ("offsets", "commits"):
            for n in self._target.numbers(log):
                if f"{log}/{n}" not in copies:
                    self._target.delete(f"{log}/{n}")
            for name in self._target.sizes(log):
                if name.endswith(".crc"):
                    self._target.delete(f"{log}/{name}")
        self._target.delete(".metadata.crc")

    def _state(self) -> Iterator[tuple[str, KeptFile]]:
        """The paths of files of state that the target gets, with the checksums beside them."""
        for directory, names in cast(Mapping[str, Mapping[str, KeptFile]], self._savepoint.files).items():
            if self._rewriting.path(f"{directory}/") is None:
                continue
            there = self._source.infos(directory)
            for name, kept in names.items():
                self._require_same(f"{directory}/{name}", kept, there.get(name))
                yield f"{directory}/{name}", kept
                for checksum in checksum_names(name):
                    if checksum in there:
                        yield f"{directory}/{checksum}", kept_file(there[checksum])

    def _require_same(self, path: str, kept: KeptFile, there: fs.FileInfo | None) -> None:
        if there is None or not _is_same(kept_file(there), kept):
            raise StateFormatError(
                f"{self._source.name}/{path} {'is missing' if there is None else 'was replaced'} since the "
                f"savepoint {self._savepoint.name} was made, which can't be used any more; drop it",
                condition="SAVEPOINT_DAMAGED",
                savepoint=self._savepoint.name,
                file=path,
            )

    def _make_folders(self, folders: Iterable[str]) -> None:
        for folder in sorted(folders):
            with self._target.reaching("make", folder):
                self._target.filesystem.create_dir(self._target.path(folder), recursive=True)

    def _operators(self) -> dict[int, str]:
        """The names of the operators by their numbers."""
        path = f"{self._savepoint.folder}/binshift/layout.json"
        with understood(f"{self._source.name}/{path}"):
            known = checked_layout(self._source.read_json(path))["operators"]
        numbered = (number_of(p) for p in (*self._savepoint.copies, *(self._savepoint.files or ())))
        return {n: "?" for n in numbered if n is not None} | {int(o["id"]): str(o["name"]) for o in known}

    def _to(self, path: str) -> str:
        """Where a file that the target has is in it."""
        to = self._rewriting.path(path)
        assert to is not None
        return to

    def _copy_small(self, paths: Iterable[str], *, verifies: bool) -> None:
        def copy(path: str) -> None:
            to = self._to(path)
            data = self._rewriting.content(path, self._source.read(f"{self._savepoint.folder}/{path}"))
            self._write(path, to, [data], verifies=verifies)

        in_parallel(copy, paths)

    def _bring(self, path: str, *, verifies: bool) -> bool:
        """Brings a file of state into the target; returns whether it shares its bytes with the original."""
        to = self._to(path)
        if self._is_same and not verifies:
            if not self._is_local:
                with self._target.reaching("copy", to):
                    self._target.filesystem.copy_file(self._source.path(path), self._target.path(to))
                return False
            with self._target.reaching("link", to), _ignoring(_NO_LINKS):
                os.link(self._source.path(path), self._target.path(to))
                return True
        with self._source.open(path) as source:
            self._write(path, to, iter(lambda: source.read(_CHUNK), b""), verifies=verifies)
        return False

    def _write(self, path: str, to: str, chunks: Iterable[bytes], *, verifies: bool) -> None:
        sent = hashlib.sha256()
        # On a local disk, a file gets its name once it is whole, and so never writes over one that is linked.
        folder, _, name = self._target.path(to).rpartition("/")
        is_local = isinstance(self._target.filesystem, fs.LocalFileSystem)
        place = f"{folder}/.{name}.{uuid4()}.tmp" if is_local else f"{folder}/{name}"
        with self._target.reaching("write", to):
            with self._target.filesystem.open_output_stream(place) as out:
                for data in chunks:
                    sent.update(data)
                    out.write(data)
            if is_local:
                self._target.filesystem.move(place, self._target.path(to))
        if verifies:
            arrived = hashlib.sha256()
            with self._target.open(to) as stream:
                while data := stream.read(_CHUNK):
                    arrived.update(data)
            if arrived.digest() != sent.digest():
                raise StateFormatError(
                    f"{self._target.name}/{to} arrived with other content than {self._source.name}/{path} "
                    "has; copy again",
                    condition="COPY_DAMAGED",
                    file=to,
                )


def _is_same(there: KeptFile, kept: KeptFile) -> bool:
    """True if a file is as it was. Some clients of a store tell times in whole seconds, and others don't."""
    now, then = there.changed_ms, kept.changed_ms
    if now is not None and then is not None and (now % 1000 == 0 or then % 1000 == 0):
        now, then = now // 1000, then // 1000
    return (there.bytes, now) == (kept.bytes, then)


@contextmanager
def _ignoring(numbers: Collection[int]) -> Iterator[None]:
    """Ignores errors of the operating system with these numbers."""
    try:
        yield
    except OSError as error:
        if error.errno not in numbers:
            raise
