"""The savepoints of a checkpoint, as the files `binshift/savepoints/<id>.json`.

As long as such a file exists, nobody deletes the files of state that it names. A savepoint is made in two
steps. First, a file `<id>.begun.json` keeps everything while its maker finds out which files the epoch needs.
Then `<id>.json` names those. Copies of small files, such as the logs of the epoch, are in the folder `<id>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from binshift.control.damage import NOT_UNDERSTOOD, plain_name, reason_of
from binshift.control.files import Files
from binshift.control.formats import require_format
from binshift.errors import ConfigurationError, impossible
from binshift.numbers import is_whole

__all__ = ["KeptFile", "Savepoint", "Savepoints"]

_DIR = "binshift/savepoints"
_FORMAT = 1
_BEGUN = ".begun"
#: Longer than anybody takes to begin one.
_MOST_TIME = timedelta(hours=1)
#: The name of one that `fork` has made for itself, and drops when it ends; and longer than that takes.
_FOR_A_FORK = re.compile(r"fork-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_FORK_TIME = timedelta(days=1)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class KeptFile:
    """What is known of a file of state, to notice if somebody replaces it.

    Parameters
    ----------
    bytes : int
    changed_ms : int or None
        When it was last changed, in milliseconds since 1970, if the file system knows.
    """

    bytes: int
    changed_ms: int | None


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint of a checkpoint.

    Parameters
    ----------
    id : str
    name : str
        As the user has called it.
    epoch : int
        The committed epoch whose state it keeps.
    made_at : datetime
    files : mapping or None
        The files of state, by directory and name; None if it was begun, and isn't finished.
    copies : tuple of str
        Small files that were copied, such as the logs of the epoch, by their paths in the checkpoint.
    """

    id: str
    name: str
    epoch: int
    made_at: datetime
    files: Mapping[str, Mapping[str, KeptFile]] | None = None
    copies: tuple[str, ...] = ()

    @property
    def is_finished(self) -> bool:
        """True if it keeps all files that the state of its epoch consists of."""
        return self.files is not None

    @property
    def version(self) -> int:
        """The version of the state that its epoch committed."""
        return self.epoch + 1

    @property
    def size(self) -> int:
        """The size of the state, in bytes as stored."""
        return sum(f.bytes for names in (self.files or {}).values() for f in names.values())

    @property
    def folder(self) -> str:
        """Where the copies of small files are in the checkpoint."""
        return f"{_DIR}/{self.id}"

    @property
    def path(self) -> str:
        """Its file in the checkpoint."""
        return f"{_DIR}/{self.id}{'' if self.is_finished else _BEGUN}.json"

    def to_json(self) -> bytes:
        """The content of its file."""
        data: dict[str, Any] = {
            "format": _FORMAT,
            "name": self.name,
            "epoch": self.epoch,
            "made_at": self.made_at.isoformat(),
        }
        if self.files is not None:
            data["copies"] = list(self.copies)
            data["files"] = [
                {"directory": d, "files": [[n, f.bytes, f.changed_ms] for n, f in sorted(names.items())]}
                for d, names in sorted(self.files.items())
            ]
        return json.dumps(data).encode()


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
        found = (self._read(i) for i in ids if not i.endswith(_BEGUN) or i.removesuffix(_BEGUN) not in ids)
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
        begun = Savepoint(str(uuid4()), name, epoch, datetime.now(UTC))
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
        # A savepoint has a file before it has a folder or another file.
        there, times = self._files.directories(_DIR), self._files.times(_DIR)
        ids = self._ids()
        used = {i.removesuffix(_BEGUN) for i in ids}
        folders = [f for f in there if f not in used]
        begun = [f"{i}.json" for i in ids if i.endswith(_BEGUN) and i.removesuffix(_BEGUN) in ids]
        halves = [n for n, at in times.items() if n[0] == "." and (n[1:] in times or _is_left(n, at, used))]
        return [f"{_DIR}/{n}" for n in (*folders, *begun, *halves)] + [s.path for s in self._of_old_forks()]

    def delete_leftovers(self) -> None:
        """Deletes what `leftovers` finds."""
        for savepoint in self._of_old_forks():
            self._files.delete(savepoint.path)
        for path in self.leftovers():
            if path.endswith(".json"):
                self._files.delete(path)
            else:
                with self._files.reaching("delete", path):
                    self._files.filesystem.delete_dir(self._files.path(path))

    def _of_old_forks(self) -> list[Savepoint]:
        old = datetime.now(UTC) - _MOST_FORK_TIME
        return [s for s in self.all() if _FOR_A_FORK.fullmatch(s.name) and s.made_at < old]

    def _ids(self) -> list[str]:
        """The names of their files, without the ending."""
        names = sorted(self._files.sizes(_DIR))
        return [n.removesuffix(".json") for n in names if n.endswith(".json") and n[0] != "."]

    def _read(self, id_: str) -> Savepoint | None:
        name = f"{_DIR}/{id_}.json"
        text = self._files.find(name)
        if text is None:
            return None
        try:
            data = json.loads(text)
            require_format(data, name, self._files.name)
            files = data.get("files")
            return Savepoint(
                id_.removesuffix(_BEGUN),
                str(data["name"]),
                int(data["epoch"]),
                datetime.fromisoformat(data["made_at"]),
                None if files is None else {_inside(d["directory"]): _kept_files(d["files"]) for d in files},
                tuple(_inside(path) for path in data.get("copies", [])),
            )
        except NOT_UNDERSTOOD as error:
            raise ConfigurationError(
                f"{self._files.name}/{name} is damaged ({reason_of(error)}), and no state is deleted as long "
                "as it is; restore it from a copy, or delete it, and with it the savepoint",
                condition="CHECKPOINT_DAMAGED",
                file=name,
            ) from error


def _is_left(hidden: str, written_at: datetime | None, used: set[str]) -> bool:
    """True if nobody is writing a hidden file any more."""
    id_ = hidden[1:].removesuffix(".json")
    if id_.endswith(_BEGUN):
        return written_at is not None and datetime.now(UTC) - written_at > _MOST_TIME
    return id_ not in used


def _inside(path: str) -> str:
    """Checks a path in the checkpoint, so that it can't lead elsewhere."""
    return "/".join(plain_name(name) for name in path.split("/"))


def _kept_files(files: Sequence[Any]) -> dict[str, KeptFile]:
    for name, size, changed_ms in files:
        if not is_whole(size) or not (changed_ms is None or is_whole(changed_ms)):
            raise ValueError(f"{name!r:.100} has {size!r:.100} bytes, changed at {changed_ms!r:.100}")
    return {plain_name(name): KeptFile(*facts) for name, *facts in files}
