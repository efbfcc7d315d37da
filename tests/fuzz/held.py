"""A checkpoint whose files are held in memory, one of which is what a fuzz target is fed."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

from binshift.control.failures import Reading
from binshift.control.files import Files
from binshift.errors import StateFormatError


class Held(Files):
    """Files by their path; asking for one outside of the checkpoint fails the target."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self._given = self.name = "held"
        self.filesystem = SimpleNamespace(delete_file=lambda path: None)

    def path(self, path: str) -> str:
        return path

    def sizes(self, directory: str) -> dict[str, int]:
        start = f"{directory}/"
        found = {n.removeprefix(start): len(d) for n, d in self.files.items() if n.startswith(start)}
        return {n: size for n, size in found.items() if "/" not in n}

    def directories(self, directory: str) -> list[str]:
        start = f"{directory}/" if directory else ""
        return sorted({n.removeprefix(start).split("/")[0] for n in self.files if n.startswith(start)})

    def exists(self, path: str) -> bool:
        return not path or path in self.files or any(n.startswith(f"{path}/") for n in self.files)

    def open(self, path: str) -> Reading:
        return Reading(io.BytesIO(self._inside(path)), path)

    def find(self, path: str) -> bytes | None:
        return self.files.get(path)

    def fetch(self, path: str, target: Path) -> None:
        target.write_bytes(self._inside(path))

    def _inside(self, path: str) -> bytes:
        if ".." in path.split("/") or path.startswith("/"):
            raise AssertionError(f"{path} is outside of the checkpoint")
        if path not in self.files:
            raise StateFormatError(f"{path} is missing", condition="FILE_MISSING", file=path)
        return self.files[path]
