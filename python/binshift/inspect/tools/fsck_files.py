"""Checks the files of a checkpoint: that each is complete, and that the files of snapshots exist."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from binshift.errors import StateFormatError
from binshift.inspect.checkpoint import Checkpoint
from binshift.inspect.storage.changelog import Changelog
from binshift.inspect.storage.checksums import check_file, is_checksum_of, is_unfinished
from binshift.inspect.storage.database import Snapshot
from binshift.inspect.storage.partition import Place
from binshift.inspect.tools.finding import Finding, Severity

_SNAPSHOT = re.compile(r"(\d+)(_.+)?\.zip")
_CHANGELOG = re.compile(r"(\d+)(_.+)?\.changelog")


def files_of(checkpoint: Checkpoint, place: Place) -> Iterator[Finding]:
    """Checks the files of one partition, of all versions."""
    files, directory = checkpoint._facts.files, place.directory
    referred: set[str] = set()
    whole, lacking = -1, []
    for name in sorted(files.sizes(directory)):
        path = f"{directory}/{name}"
        try:
            if match := _SNAPSHOT.fullmatch(name):
                names, problem = _snapshot(checkpoint, path)
                referred |= names
                if problem:
                    lacking.append((int(match[1]), path, problem))
                else:
                    whole = max(whole, int(match[1]))
            elif _CHANGELOG.fullmatch(name):
                with files.open(path) as stream:
                    for _ in Changelog(stream, path).records():
                        pass
            elif not is_checksum_of(name, files.sizes(directory)):
                yield Finding(Severity.ORPHAN, path, "belongs to no version")
        except StateFormatError as error:
            yield Finding(Severity.DAMAGE, path, str(error))
    yield from _lacking(checkpoint, lacking, whole)
    yield from checksums(checkpoint, directory)
    ssts = files.sizes(f"{directory}/SSTs")
    for name in sorted(ssts):
        if name not in referred and not is_checksum_of(name, ssts):
            yield Finding(Severity.ORPHAN, f"{directory}/SSTs/{name}", "no snapshot refers to it")
    yield from checksums(checkpoint, f"{directory}/SSTs")


def checksums(checkpoint: Checkpoint, directory: str) -> Iterator[Finding]:
    """Compares the files of a directory with the checksums that Spark has written beside them."""
    files = checkpoint._facts.files
    there = files.sizes(directory)
    for name in sorted(there):
        if is_unfinished(name):
            # A file that a dead writer has left is no damage, because nothing refers to it.
            continue
        try:
            problem = check_file(files, directory, name, there)
        except StateFormatError as error:
            problem = str(error)
        if problem:
            yield Finding(Severity.DAMAGE, f"{directory}/{name}" if directory else name, problem)
        elif name.endswith(".crc") and not is_checksum_of(name, there):
            yield Finding(Severity.ORPHAN, f"{directory}/{name}", "is the checksum of a file that is gone")


def _lacking(
    checkpoint: Checkpoint, lacking: list[tuple[int, str, str]], newest_whole: int
) -> Iterator[Finding]:
    """Snapshots with missing files, by version and path.

    Spark deletes the files of old versions before the versions themselves, and may be stopped in between. By
    then, the commit log no longer has these versions either.
    """
    oldest = min(checkpoint._facts.files.numbers("commits"), default=-1) + 1
    for version, path, problem in lacking:
        if version <= min(oldest, newest_whole - 1):
            yield Finding(Severity.ORPHAN, path, f"{problem}; Spark was about to delete the snapshot, too")
        else:
            yield Finding(Severity.DAMAGE, path, f"{problem}; restore it from a copy")


def _snapshot(checkpoint: Checkpoint, path: str) -> tuple[set[str], str | None]:
    """The names of the files that a snapshot refers to, and which of them is missing."""
    scratch = Path(tempfile.mkdtemp(prefix="snapshot-", dir=checkpoint._scratch))
    try:
        snapshot = Snapshot(checkpoint._facts.files, path, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    directory = path.rpartition("/")[0]
    there = checkpoint._facts.files.sizes(f"{directory}/SSTs")
    problem = None
    for _, name, size in snapshot.ssts:
        if name not in there:
            problem = problem or f"SSTs/{name}, which it refers to, is missing"
        elif there[name] != size:
            what = f"has {there[name]} bytes instead of {size}; restore it from a copy"
            raise StateFormatError(f"SSTs/{name}, which it refers to, {what}")
    return {name for _, name, _ in snapshot.ssts}, problem
