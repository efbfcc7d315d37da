"""HDFS for pyarrow, by a client that needs no Hadoop installation."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import hdfs_native
import pyarrow as pa
from pyarrow import fs

__all__ = ["HdfsHandler"]

#: Bytes that are read at a time to copy a file.
_CHUNK = 1 << 20


class HdfsHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """One HDFS. The client reads Hadoop's settings from `HADOOP_CONF_DIR`, as Spark does.

    Parameters
    ----------
    place : str
        Scheme and authority of the URI, such as `hdfs://namenode:8020`.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        # "hdfs://" without a host is the file system that Hadoop's settings name.
        self._client = hdfs_native.Client(place if place.partition("://")[2] else None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsHandler) and other._place == self._place

    def __hash__(self) -> int:
        return hash(self._place)

    def get_type_name(self) -> str:
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            found = list(self._client.list_status(selector.base_dir, selector.recursive))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        # A file is listed as itself.
        if [status.path for status in found if not status.isdir] == [selector.base_dir]:
            raise _error(errno.ENOTDIR, selector.base_dir)
        return [_info_of(status) for status in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        self._client.mkdirs(path, create_parent=recursive)

    def delete_dir(self, path: str) -> None:
        self._delete(path, fs.FileType.Directory)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        selector = fs.FileSelector(path, allow_not_found=missing_dir_ok)
        for info in self.get_file_info_selector(selector):
            self._client.delete(info.path, recursive=True)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir_contents("/")

    def delete_file(self, path: str) -> None:
        self._delete(path, fs.FileType.File)

    def move(self, src: str, dest: str) -> None:
        self._client.rename(src, dest, overwrite=True)

    def copy_file(self, src: str, dest: str) -> None:
        # HDFS can't copy by itself.
        with self._client.read(src) as source, self._create(dest) as target:
            shutil.copyfileobj(source, target, _CHUNK)

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(self._client.read(path), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.PythonFile:
        return pa.PythonFile(self._create(path), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.PythonFile:
        return pa.PythonFile(self._client.append(path), mode="w")

    def _create(self, path: str) -> hdfs_native.FileWriter:
        return self._client.create(path, hdfs_native.WriteOptions(overwrite=True))

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return _info_of(self._client.get_file_info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def _delete(self, path: str, kind: fs.FileType) -> None:
        found = self._info(path).type
        if found not in (kind, fs.FileType.NotFound):
            raise _error(errno.EISDIR if found == fs.FileType.Directory else errno.ENOTDIR, path)
        # Of several who delete a file, one is told so.
        if not self._client.delete(path, recursive=kind == fs.FileType.Directory):
            raise _error(errno.ENOENT, path)


def _error(number: int, path: str) -> OSError:
    """The operating system's error of this number."""
    return OSError(number, os.strerror(number), path)


def _info_of(status: hdfs_native.FileStatus) -> fs.FileInfo:
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    changed = datetime.fromtimestamp(status.modification_time / 1000, UTC)
    return fs.FileInfo(status.path, kind, size=None if status.isdir else status.length, mtime=changed)
