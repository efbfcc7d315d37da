"""Tries with a small file whether a file system does what binshift needs."""

from __future__ import annotations

import contextlib
import os
import time
from uuid import uuid4

from pyarrow import fs

from binshift.control.checks import Check, Verdict
from binshift.control.files import Files
from binshift.errors import StorageError

__all__ = ["try_files"]

_FOLDER = "binshift/requests"
_SLOW_SECONDS = 1.0


def try_files(files: Files) -> Check:
    """Does with a small file what binshift does with its own files: writes, renames, lists, reads, deletes.

    The file is deleted again. On a local file system, so are the directories that were made for it; on others,
    they stay, and are empty.
    """
    name = f".doctor-{uuid4()}"
    try:
        with files.reaching("look for its directory", ""):
            absent = _absent(files)
    except StorageError as error:
        return _problem(error)
    try:
        return _tried(files, name)
    finally:
        _clean_up(files, name, absent)


def _tried(files: Files, name: str) -> Check:
    system, text = files.filesystem, uuid4().bytes
    hidden = files.path(f"{_FOLDER}/{name}")
    began = time.monotonic()
    try:
        with files.reaching("make the directory", _FOLDER):
            system.create_dir(files.path(_FOLDER), recursive=True)
        with files.reaching("write", _FOLDER), system.open_output_stream(f"{hidden}.part") as stream:
            stream.write(text)
        with files.reaching("rename a file in", _FOLDER):
            system.move(f"{hidden}.part", hidden)
        is_listed = name in files.sizes(_FOLDER)
        is_same = files.find(f"{_FOLDER}/{name}") == text
        with files.reaching("delete a file in", _FOLDER):
            system.delete_file(hidden)
        is_gone = not files.exists(f"{_FOLDER}/{name}")
    except StorageError as error:
        return _problem(error)
    seconds = (time.monotonic() - began) / 7
    stale = [what for what, so in (("listed", is_listed), ("read", is_same), ("deleted", is_gone)) if not so]
    if stale:
        return Check(
            "file system",
            Verdict.PROBLEM,
            f"a file that was just written in {files.name} is not {', '.join(stale)} as it should be",
            "put the checkpoint onto a store whose reads and listings show what was written before",
        )
    found = f"writes, renames, lists, reads and deletes; {1000 * seconds:.0f} ms a request"
    if seconds > _SLOW_SECONDS:
        return Check("file system", Verdict.ADVICE, found, "put checkpoint and query into the same region")
    return Check("file system", Verdict.FINE, found)


def _problem(error: StorageError) -> Check:
    return Check(
        "file system",
        Verdict.PROBLEM,
        # The last part of the message is advice that doesn't apply here.
        str(error).rpartition("; ")[0],
        "give this user, and those of the driver and the executors, the right to do so",
    )


def _absent(files: Files) -> list[str]:
    """The directories that have to be made for the folder of requests, deepest first."""
    absent = []
    path = files.path(_FOLDER)
    while path and files.filesystem.get_file_info(path).type == fs.FileType.NotFound:
        absent.append(path)
        path = path.rpartition("/")[0]
    return absent


def _clean_up(files: Files, name: str, made: list[str]) -> None:
    """Deletes directories unless others have put something into them meanwhile.

    Empty directories are deleted only on a local file system.
    """
    system = files.filesystem
    for rest in (name, f"{name}.part"):
        with contextlib.suppress(Exception):
            system.delete_file(files.path(f"{_FOLDER}/{rest}"))
    if not isinstance(system, fs.LocalFileSystem):
        return  # Its directories can be deleted with what is in them only, and somebody may write there now.
    with contextlib.suppress(OSError):
        for path in made:
            os.rmdir(path)
