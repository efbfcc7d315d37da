"""Reads and writes a checkpoint's files on any file system that pyarrow reaches."""

from __future__ import annotations

import json
import os
import re
from contextlib import AbstractContextManager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from pyarrow import fs

from binshift.control.damage import damaged
from binshift.control.failures import Reading, reaching
from binshift.control.uris import for_pyarrow, is_uri, place_and_path, shown, within, without_secrets
from binshift.errors import ConfigurationError, StateFormatError

__all__ = ["Files", "file_system_of"]

#: Exceptions for a missing file. The second one is raised for a path that continues below a file.
_ABSENT = (FileNotFoundError, NotADirectoryError)


class Files:
    """The files below one directory, named by paths relative to it.

    Parameters
    ----------
    root : str or path
        A local directory, or a URI of a file system that pyarrow knows (`s3://`, `gs://`, …). Its path is taken
        literally, as Spark does.
    filesystem : pyarrow.fs.FileSystem, optional
        The file system of the path `root`, if a URI can't describe it.

    Raises
    ------
    ConfigurationError
        If no file system is known for the URI.
    StorageError
        By each method, if the operating system or the store refuses, or fails.

    Attributes
    ----------
    name : str
        `root` as it was given, without credentials, for messages.
    filesystem : pyarrow.fs.FileSystem
    """

    def __init__(self, root: str | os.PathLike[str], filesystem: fs.FileSystem | None = None) -> None:
        given = self._given = self.name = os.fspath(root)
        if filesystem is not None:
            self.filesystem, self._root = filesystem, given
        elif is_uri(given):
            self.name = shown(given)
            self.filesystem, self._root = file_system_of(given)
        else:
            self.filesystem, self._root = fs.LocalFileSystem(), os.path.abspath(given)
        self._root = self._root.rstrip("/")

    def path(self, path: str) -> str:
        """A file's path in the file system."""
        return f"{self._root}/{path}" if path else self._root

    def reaching(
        self, doing: str, path: str, absent: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        """Wraps a body that uses a file through `filesystem`; see `failures.reaching`."""
        return reaching(doing, self._place(path), absent)

    def _place(self, path: str) -> str:
        return within(self._given, path) if path else self._given

    def sizes(self, directory: str) -> dict[str, int]:
        """Size in bytes of each file of a directory, by name; empty if there is no such directory."""
        return {i.base_name: i.size for i in self._list(directory) if i.type == fs.FileType.File}

    def times(self, directory: str) -> dict[str, datetime | None]:
        """When each file of a directory was last changed, by name, if the file system knows."""
        return {i.base_name: i.mtime for i in self._list(directory) if i.type == fs.FileType.File}

    def directories(self, directory: str) -> list[str]:
        """Names of the directories in a directory, sorted."""
        return sorted(i.base_name for i in self._list(directory) if i.type == fs.FileType.Directory)

    def below(self, directory: str) -> list[str]:
        """The paths of all files in a directory and below, relative to the root; none if it doesn't exist."""
        found = self._list(directory, recursive=True)
        start = len(self._root) + 1
        return sorted(i.path[start:] for i in found if i.type == fs.FileType.File)

    def numbers(self, directory: str) -> list[int]:
        """The files of a directory whose names are numbers, ascending."""
        return sorted(int(n) for n in self.sizes(directory) if n.isascii() and n.isdigit())

    def _list(self, directory: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self.path(directory), allow_not_found=True, recursive=recursive)
        with self.reaching("list", directory):
            return cast(list[fs.FileInfo], self.filesystem.get_file_info(selector))

    def is_free(self, marker: str) -> bool:
        """True if a checkpoint may be written to the root.

        Nothing is there, or what somebody has left who was cut short: the file `marker`, and not yet the file
        `metadata`, which comes last.
        """
        names = {*self.sizes(""), *self.directories("")}
        return not names or (marker in names and "metadata" not in names)

    def exists(self, path: str) -> bool:
        """True if a file or directory exists."""
        with self.reaching("look for", path):
            return bool(self.filesystem.get_file_info(self.path(path)).type != fs.FileType.NotFound)

    def open(self, path: str) -> Reading:
        """A stream of a file's bytes.

        Raises
        ------
        StateFormatError
            If the file does not exist.
        """
        try:
            with self.reaching("read", path, _ABSENT):
                stream = self.filesystem.open_input_stream(self.path(path), compression=None)
            return Reading(stream, self._place(path))
        except _ABSENT as error:
            raise StateFormatError(
                f"{path} is missing from {self.name}; if the query runs, it may have been purged since: look "
                "again at a newer version; otherwise restore the file from a copy of the checkpoint",
                condition="FILE_MISSING",
                file=path,
            ) from error

    def read(self, path: str) -> bytes:
        """All bytes of a small file."""
        with self.open(path) as stream:
            return stream.read()

    def find(self, path: str) -> bytes | None:
        """All bytes of a small file; None if it doesn't exist."""
        try:
            with (
                self.reaching("read", path, _ABSENT),
                self.filesystem.open_input_stream(self.path(path), compression=None) as stream,
            ):
                return cast(bytes, stream.read())
        except _ABSENT:
            return None

    def read_json(self, path: str) -> Any:
        """A JSON file.

        Raises
        ------
        StateFormatError
            If the file doesn't exist or isn't JSON.
        """
        return parse_json(self.read(path), f"{self.name}/{path}")

    def write(self, path: str, data: bytes) -> None:
        """Writes a small file so that it appears as a whole: readers skip names that begin with a dot."""
        folder, _, name = self.path(path).rpartition("/")
        hidden = f"{folder}/.{name}"
        with self.reaching("write", path):
            self.filesystem.create_dir(folder, recursive=True)
            with self.filesystem.open_output_stream(hidden) as stream:
                stream.write(data)
            self.filesystem.move(hidden, self.path(path))

    def delete(self, path: str) -> bool:
        """Deletes a file; returns whether it was there."""
        try:
            with self.reaching("delete", path, _ABSENT):
                self.filesystem.delete_file(self.path(path))
        except _ABSENT:
            return False
        return True

    def fetch(self, path: str, target: Path) -> None:
        """Makes a file available at a local path: as a hard link if possible, else as a copy."""
        if isinstance(self.filesystem, fs.LocalFileSystem):
            try:
                os.link(self.path(path), target)
            except FileNotFoundError:
                pass  # open() says what is missing
            except OSError:
                pass  # another device, or no permission to link: a copy does as well
            else:
                return
        with self.open(path) as source, reaching("write", str(target)), target.open("wb") as out:
            while data := source.read(1 << 20):
                out.write(data)


def file_system_of(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path in it.

    Raises
    ------
    ConfigurationError
        If no file system is known for the URI.
    """
    if _is_hdfs(uri) and find_spec("hdfs_native") is not None:
        # pyarrow's own needs libhdfs, of a Hadoop installation.
        from binshift.control.hdfs import HdfsHandler  # noqa: PLC0415 - an extra

        place, path = place_and_path(uri)
        with reaching("open", uri):
            return fs.PyFileSystem(HdfsHandler(place)), path
    opened = for_pyarrow(uri)
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(opened)
    except (OSError, ValueError) as error:
        # Not `from error`, because its text may contain the credentials. For HDFS, it also has a line for each
        # place that was searched.
        reason = without_secrets(str(error).partition("\n")[0], opened)
        raise ConfigurationError(
            f"pyarrow cannot open {shown(uri)} ({reason}); {_advice(uri)}", condition="FILE_SYSTEM_UNKNOWN"
        ) from None
    return found


def parse_json(data: bytes, what: str) -> Any:
    """The value of JSON text.

    Raises
    ------
    StateFormatError
        If it is no JSON.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(what, error) from error


def _is_hdfs(uri: str) -> bool:
    return re.match(r"(hdfs|viewfs):", uri) is not None


def _advice(uri: str) -> str:
    if not _is_hdfs(uri):
        return "give a path, or a URI of a file system that pyarrow supports"
    return (
        "pip install 'binshift[hdfs]', or set JAVA_HOME, HADOOP_HOME, and CLASSPATH to what 'hadoop classpath "
        "--glob' prints, for pyarrow's own client of HDFS"
    )
