"""The savepoints of a checkpoint, as the files `binshift/savepoints/<id>.json`.

As long as such a file exists, nobody deletes the files of state that it names. A savepoint is made in two
steps. First, a file `<id>.begun.json` keeps everything while its maker finds out which files the epoch needs.
Then `<id>.json` names those. Copies of small files, such as the logs of the epoch, are in the folder `<id>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from binshift.control.damage import NOT_UNDERSTOOD, reason_of
from binshift.control.files import Files
from binshift.control.formats import require_format
from binshift.control.savepoint_file import BEGUN, DIR, KeptFile, Savepoint, savepoint_of
from binshift.errors import ConfigurationError, impossible

__all__ = ["KeptFile", "Savepoint", "Savepoints"]

#: Longer than anybody takes to begin one.
_MOST_TIME = timedelta(hours=1)
#: The name of one that `fork` has made for itself, and drops when it ends; and longer than that takes.
_FOR_A_FORK = re.compile(r"fork-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_FORK_TIME = timedelta(days=1)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Savepoints:
    """Reads and writes the savepoints of a checkpoint."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def all(self) -> list[Savepoint]:
        """All savepoints, oldest first, including those that were begun only.

        Raises
        ------
        ConfigurationError
            If one of them is damaged.
        """
        ids = self._ids()
        # The file that a finished one began with is left if its maker ended right then.
        found = (self._read(i) for i in ids if not i.endswith(BEGUN) or i.removesuffix(BEGUN) not in ids)
        return sorted((s for s in found if s is not None), key=lambda s: (s.made_at, s.id))

    def get(self, name: str) -> Savepoint:
        """The finished savepoint of a name.

        Raises
        ------
        ConfigurationError
            If there is none.
        """
        there = self.all()
        found = next((s for s in there if s.name == name and s.is_finished), None)
        if found is None:
            names = ", ".join(s.name for s in there if s.is_finished) or "none"
            begun = any(s.name == name for s in there)
            raise ConfigurationError(
                f"{self._files.name} has no savepoint {name!r}; its savepoints: {names}"
                + ("; this one was begun and not finished; drop it, and make it again" if begun else ""),
                condition="SAVEPOINT_NOT_FOUND",
                savepoint=name,
            )
        return found

    def begin(self, name: str, epoch: int) -> Savepoint:
        """Begins one, which keeps everything until it is finished or deleted, but for an hour at most.

        Raises
        ------
        ConfigurationError
            If the name is taken, or impossible.
        """
        if _NAME.fullmatch(name) is None:
            wanted = "up to 100 letters, digits, dots, dashes and underscores, the first a letter or a digit"
            raise impossible(ConfigurationError, "name", name, wanted)
        if any(s.name == name for s in self.all()):
            raise ConfigurationError(
                f"{self._files.name} has a savepoint {name} already; choose another name, or drop that one",
                condition="SAVEPOINT_EXISTS",
                savepoint=name,
            )
        begun = Savepoint(f"{epoch}-{uuid4()}", name, epoch, datetime.now(UTC))
        self._files.write(begun.path, begun.to_json())
        return begun

    def finish(
        self, begun: Savepoint, files: Mapping[str, Mapping[str, KeptFile]], copies: Iterable[str]
    ) -> Savepoint:
        """Makes a savepoint keep these files, and nothing else.

        Raises
        ------
        ConfigurationError
            If it was dropped since it was begun, so that files may have been deleted.
        """
        finished = replace(begun, files=files, copies=tuple(sorted(copies)))
        self._files.write(finished.path, finished.to_json())
        if not self._files.delete(begun.path):
            self.delete(finished)
            raise ConfigurationError(
                f"savepoint {begun.name} of {self._files.name} was dropped while it was made; make it again",
                condition="SAVEPOINT_NOT_FOUND",
                savepoint=begun.name,
            )
        return finished

    def delete(self, savepoint: Savepoint) -> None:
        """Deletes one. The query deletes its files of state when it cleans up, unless it needs them."""
        # The folder last: if this is cut short, the next delete finds a folder without a file.
        for path in (savepoint.path, replace(savepoint, files=None).path):
            self._files.delete(path)
        self.delete_leftovers()

    def leftovers(self) -> list[str]:
        """What is left by makers, forks and drops that were cut short.

        Folders of savepoints that are gone, files that finished ones have begun with, files that are only half
        written, and savepoints that were made for a fork a day ago.
        """
        folders, files = self._remains()
        return [*folders, *files, *(s.path for s in self._of_old_forks())]

    def delete_leftovers(self) -> None:
        """Deletes what `leftovers` finds."""
        # Before their folders, which are left then.
        for savepoint in self._of_old_forks():
            self._files.delete(savepoint.path)
        folders, files = self._remains()
        for path in folders:
            with self._files.reaching("delete", path):
                self._files.filesystem.delete_dir(self._files.path(path))
        for path in files:
            self._files.delete(path)

    def _remains(self) -> tuple[list[str], list[str]]:
        """Folders and files that belong to no savepoint."""
        # A savepoint has a file before it has a folder or another file.
        there, times = self._files.directories(DIR), self._files.times(DIR)
        ids = self._ids()
        used = {i.removesuffix(BEGUN) for i in ids}
        folders = [f for f in there if f not in used]
        # Its maker, who has just finished it, takes it for dropped if this file is gone.
        begun = [f"{i}.json" for i in ids if i.endswith(BEGUN) and i.removesuffix(BEGUN) in ids]
        begun = [n for n in begun if _is_old(times.get(n))]
        halves = [n for n, at in times.items() if n[0] == "." and _is_left(n[1:], at, times, used)]
        return [f"{DIR}/{n}" for n in folders], [f"{DIR}/{n}" for n in (*begun, *halves)]

    def _of_old_forks(self) -> list[Savepoint]:
        old = datetime.now(UTC) - _MOST_FORK_TIME
        return [s for s in self.all() if _FOR_A_FORK.fullmatch(s.name) and s.made_at < old]

    def _ids(self) -> list[str]:
        """The names of their files, without the ending."""
        names = sorted(self._files.sizes(DIR))
        return [n.removesuffix(".json") for n in names if n.endswith(".json") and n[0] != "."]

    def _read(self, id_: str) -> Savepoint | None:
        name = f"{DIR}/{id_}.json"
        text = self._files.find(name)
        if text is None:
            return None
        try:
            data = json.loads(text)
            require_format(data, name, self._files.name)
            return savepoint_of(id_.removesuffix(BEGUN), data)
        except NOT_UNDERSTOOD as error:
            raise ConfigurationError(
                f"{self._files.name}/{name} is damaged ({reason_of(error)}), and no state is deleted as long "
                "as it is; restore it from a copy, or delete it, and with it the savepoint",
                condition="CHECKPOINT_DAMAGED",
                file=name,
            ) from error


def _is_left(name: str, written_at: datetime | None, there: Collection[str], used: set[str]) -> bool:
    """True if nobody is writing a hidden file of a name any more, or needs it."""
    is_old = _is_old(written_at)
    if name.endswith(".crc"):
        # Hadoop writes the checksum of a file beside it.
        return is_old and name.removesuffix(".crc") not in there
    id_ = name.removesuffix(".json")
    if id_ == name or id_.endswith(BEGUN):
        return is_old
    return name in there or id_ not in used


def _is_old(written_at: datetime | None) -> bool:
    return written_at is not None and datetime.now(UTC) - written_at > _MOST_TIME
