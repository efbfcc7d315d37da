"""Files that stay because a savepoint keeps them, and no others."""

from __future__ import annotations

import json
from pathlib import Path

from traces.events import read, version_file


class Spared:
    """The files that the savepoints of a checkpoint have kept so far, also those that were dropped since."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._kept: set[str] = set()

    def note(self) -> None:
        """Takes in the savepoints that are there."""
        for savepoint in (self._checkpoint / "binshift/savepoints").glob("*.json"):
            for folder in json.loads(savepoint.read_text()).get("files", []):
                self._kept |= {
                    f"{self._checkpoint}/{folder['directory']}/{name}" for name, *_ in folder["files"]
                }

    def left_for_nothing(self, trace: Path) -> list[str]:
        """The files of versions that cleanups deleted which they left, although no savepoint keeps them."""
        events = read(trace, under=self._checkpoint).get(str(self._checkpoint), [])
        return [
            f"{path}, by a cleanup before version {e['before']}"
            for e in events
            if e.name == "deletes" and "before" in e.values
            for path in e["kept"]
            if (file := version_file(path)) is not None
            and file.version < e["before"]
            and path not in self._kept
        ]
