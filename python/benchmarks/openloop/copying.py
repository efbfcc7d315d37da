"""Measures what the disk could do: how long it takes to copy the files of a state as they are."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

from binshift.control.files import Files
from binshift.inspect.storage.database import Snapshot

__all__ = ["copy_seconds"]

#: How often they are copied to see how long that takes.
TIMES = 5


def copy_seconds(checkpoint: Path, scratch: Path) -> float:
    """Seconds to copy RocksDB's files of the newest snapshot of each store, within the page cache."""
    stores: dict[Path, list[Path]] = {}
    for snapshot in checkpoint.glob("state/**/*.zip"):
        stores.setdefault(snapshot.parent, []).append(snapshot)
    newest = [max(snapshots, key=_version) for snapshots in stores.values()]
    files = [file for snapshot in newest for file in _files_of(snapshot, scratch)]
    return statistics.median(_seconds(files, scratch) for _ in range(TIMES))


def _seconds(files: list[Path], scratch: Path) -> float:
    with tempfile.TemporaryDirectory(dir=scratch) as copies:
        begin = time.monotonic()
        for i, file in enumerate(files):
            shutil.copy(file, Path(copies, str(i)))
        return time.monotonic() - begin


def _files_of(snapshot: Path, scratch: Path) -> list[Path]:
    with tempfile.TemporaryDirectory(dir=scratch) as unpacked:
        named = Snapshot(Files(snapshot.parent), snapshot.name, Path(unpacked)).ssts
    return [snapshot.parent / "SSTs" / name for _, name, _ in named]


def _version(snapshot: Path) -> int:
    return int(snapshot.stem.split("_")[0])
