"""The content of `binshift/savepoints/<id>.json`, without access to a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from binshift.control.damage import plain_name
from binshift.numbers import is_whole

__all__ = ["BEGUN", "DIR", "KeptFile", "Savepoint", "savepoint_of"]

DIR = "binshift/savepoints"
FORMAT = 1
#: In the names of those that are begun and not finished.
BEGUN = ".begun"


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
        Begins with the epoch, so that nobody has to read those of other epochs.
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
        return f"{DIR}/{self.id}"

    @property
    def path(self) -> str:
        """Its file in the checkpoint."""
        return f"{DIR}/{self.id}{'' if self.is_finished else BEGUN}.json"

    def to_json(self) -> bytes:
        """The content of its file."""
        data: dict[str, Any] = {
            "format": FORMAT,
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


def savepoint_of(id_: str, data: Mapping[str, Any]) -> Savepoint:
    """The savepoint with a content; raises one of NOT_UNDERSTOOD if it is none."""
    files = data.get("files")
    return Savepoint(
        id_,
        str(data["name"]),
        int(data["epoch"]),
        datetime.fromisoformat(data["made_at"]),
        None if files is None else {_inside(d["directory"]): _kept_files(d["files"]) for d in files},
        tuple(_inside(path) for path in data.get("copies", [])),
    )


def _inside(path: str) -> str:
    """Checks a path in the checkpoint, so that it can't lead elsewhere."""
    return "/".join(plain_name(name) for name in path.split("/"))


def _kept_files(files: Sequence[Any]) -> dict[str, KeptFile]:
    for name, size, changed_ms in files:
        if not is_whole(size) or not (changed_ms is None or is_whole(changed_ms)):
            raise ValueError(f"{name!r:.100} has {size!r:.100} bytes, changed at {changed_ms!r:.100}")
    return {plain_name(name): KeptFile(*facts) for name, *facts in files}
