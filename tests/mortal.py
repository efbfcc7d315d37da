"""Does something in a child process that ends, as if it were killed, at its n-th change of a file system."""

from __future__ import annotations

import itertools
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyarrow import fs

_KILLED = 9


def killed_at_changes(do: Callable[[], object], anew: Callable[[], None], every: int = 1) -> Iterator[int]:
    """Calls `anew`, then `do` in a child that ends before its n-th change; n grows until none is killed.

    Yields n after each child that was killed.
    """
    for n in itertools.count(step=every):
        anew()
        if not is_killed(do, n):
            return
        yield n


def changes_of(do: Callable[[], object]) -> int:
    """Calls `do` in a child, and tells how many changes it has made."""
    reading, writing = os.pipe()
    assert not is_killed(do, -1, lambda changes: os.write(writing, str(changes).encode()))
    return int(os.read(reading, 20))


def is_killed(do: Callable[[], object], n: int, at_end: Callable[[int], object] = lambda changes: None) -> bool:
    """Calls `do` in a child that ends before its n-th change; returns False if it has fewer changes."""
    # One that is killed doesn't delete its temporary files.
    with TemporaryDirectory() as scratch:
        child = os.fork()
        if child == 0:
            tempfile.tempdir = scratch
            try:
                changes = _mortal(n)
                do()
                at_end(next(changes))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, _KILLED), f"the child failed at change {n}: {code}"
    return code == _KILLED


def _mortal(n: int) -> Iterator[int]:
    """Makes this process end before its n-th change of a local file system through pyarrow, or by a link."""
    changes = itertools.count()

    def before_change() -> None:
        if next(changes) == n:
            os._exit(_KILLED)

    class Mortal(fs.LocalFileSystem):  # type: ignore[misc]
        def create_dir(self, path: str, **kwargs: Any) -> None:
            if not os.path.isdir(path):
                before_change()
            super().create_dir(path, **kwargs)

        def open_output_stream(self, path: str, **kwargs: Any) -> Any:
            before_change()
            stream = super().open_output_stream(path, **kwargs)
            # The file is there, and empty.
            before_change()
            return stream

        def move(self, path: str, to: str) -> None:
            before_change()
            super().move(path, to)

        def copy_file(self, path: str, to: str) -> None:
            before_change()
            super().copy_file(path, to)

        def delete_file(self, path: str) -> None:
            before_change()
            super().delete_file(path)

        def delete_dir(self, path: str) -> None:
            # One file after the other, as on any file system.
            for file in sorted(Path(path).rglob("*"), reverse=True):
                before_change()
                if file.is_dir():
                    file.rmdir()
                else:
                    file.unlink()
            before_change()
            super().delete_dir(path)

    real = os.link

    def link(*args: Any, **kwargs: Any) -> None:
        before_change()
        real(*args, **kwargs)

    fs.LocalFileSystem, os.link = Mortal, link
    return changes
