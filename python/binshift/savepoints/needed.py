"""Finds out which files make up the state of an epoch, by the plan by which state is read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TypeVar

from pyarrow import fs

from binshift.control.files import Files
from binshift.control.savepoints import KeptFile
from binshift.errors import StateFormatError
from binshift.inspect.facts import Facts
from binshift.inspect.storage.database import Snapshot
from binshift.inspect.storage.partition import Bins, Partitions, Place

__all__ = ["ListedOnce", "Needed", "in_parallel", "kept_file"]

#: How many requests to a store are made at the same time.
_THREADS = 32
_T = TypeVar("_T")
_R = TypeVar("_R")


class ListedOnce(Files):
    """The files of a checkpoint, each of whose directories is listed once."""

    def __init__(self, files: Files) -> None:
        super().__init__(files.path(""), files.filesystem)
        self.name = files.name
        self._once = lru_cache(maxsize=None)(super()._list)

    def _list(self, directory: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        return self._once(directory, recursive=recursive)

    def infos(self, directory: str) -> dict[str, fs.FileInfo]:
        """What is known of each file of a directory, by name."""
        return {i.base_name: i for i in self._list(directory) if i.type == fs.FileType.File}


class Needed:
    """The files that make up the state of a version.

    Parameters
    ----------
    files : ListedOnce
        Files that are needed must not be deleted meanwhile.
    version : int
        A committed version.

    Raises
    ------
    StateFormatError
        If some are missing.
    """

    def __init__(self, files: ListedOnce, version: int) -> None:
        self._files = files
        #: What it has read of the checkpoint.
        self.facts = Facts(files)
        self._lock = Lock()
        self._seen: set[tuple[str, int, Bins | None]] = set()
        self._names: dict[str, set[str]] = {}
        #: The oldest version that is read. The routing log is needed from there on.
        self.oldest = version
        self._scratch = Path(tempfile.mkdtemp(prefix="binshift-savepoint-"))
        try:
            self._partitions = Partitions(self.facts, self._scratch)
            places = [
                Place(operator, store, partition)
                for operator in self.facts.operators(version)
                for store in operator.stores
                for partition in self.facts.partitions(operator, version)
            ]
            in_parallel(lambda place: self._add([(place, version, None)]), places)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def files(self) -> Mapping[str, Mapping[str, KeptFile]]:
        """The files by directory and name, with what the listing says of them."""
        return {d: self._kept(d, names) for d, names in self._names.items()}

    def _add(self, wanted: list[tuple[Place, int, Bins | None]]) -> None:
        """Adds what is read for places at versions, and of the places from which their bins came."""
        while wanted:
            place, version, bins = wanted.pop()
            with self._lock:
                if (place.directory, version, bins) in self._seen:
                    continue
                self._seen.add((place.directory, version, bins))
            recipe = self._partitions.recipe(place, version, bins)
            changelogs = (*(f for _, f in recipe.changelogs), *recipe.skipped)
            self._note(place.directory, (f.rpartition("/")[2] for f in changelogs))
            if recipe.snapshot is not None:
                self._note(place.directory, [recipe.snapshot.rpartition("/")[2]])
                for file in self._of_snapshot(recipe.snapshot):
                    folder, _, name = file.partition("/")
                    self._note(f"{place.directory}/{folder}", [name])
            with self._lock:
                self.oldest = min([self.oldest, recipe.snapshot_version, *(v for v, _ in recipe.changelogs)])
            for epoch, sources in self._partitions.arriving(place, recipe, version, bins).items():
                wanted += [(Place(place.operator, place.store, p), epoch, of) for p, of in sources.items()]

    def _of_snapshot(self, path: str) -> list[str]:
        scratch = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            return Snapshot(self._files, path, scratch).files
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _note(self, directory: str, names: Iterable[str]) -> None:
        with self._lock:
            self._names.setdefault(directory, set()).update(names)

    def _kept(self, directory: str, names: Iterable[str]) -> Mapping[str, KeptFile]:
        there = self._files.infos(directory)
        for name in names:
            if name not in there:
                raise StateFormatError(
                    f"{directory}/{name} is missing from {self._files.name}; restore it from a copy",
                    condition="FILE_MISSING",
                    file=f"{directory}/{name}",
                )
        return {name: kept_file(there[name]) for name in names}


def in_parallel(do: Callable[[_T], _R], of: Iterable[_T]) -> list[_R]:
    """What a function returns for each of some things; raises what it raises for the first."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(do, of))


def kept_file(info: fs.FileInfo) -> KeptFile:
    """What a listing says of a file."""
    changed = None if info.mtime_ns is None else info.mtime_ns // 1_000_000
    return KeptFile(int(info.size), changed)
