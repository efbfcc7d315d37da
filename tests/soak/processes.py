"""The resources that the processes of a soak use, from Linux and the JVM."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

_PAGE = 4096
_EXECUTOR = b"CoarseGrainedExecutorBackend"


def executors(folder: Path) -> list[int]:
    """The executors that have their directories below a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                _EXECUTOR in (process / "cmdline").read_bytes()
                and folder in (process / "cwd").resolve().parents
            ):
                found.append(int(process.name))
    return sorted(found)


def taken(pid: int) -> dict[str, float] | None:
    """Resident memory and heap in bytes, threads, and open files; None if the process is gone."""
    process = Path("/proc") / str(pid)
    try:
        rss = int((process / "statm").read_text().split()[1]) * _PAGE
        threads = sum(1 for _ in (process / "task").iterdir())
        files = sum(1 for _ in (process / "fd").iterdir())
    except OSError:
        return None
    return {"rss": rss, "threads": threads, "files": files, **_heap(pid)}


def _heap(pid: int) -> dict[str, float]:
    """The used bytes of the heap's old generation, for long-lived objects, and in total, by `jstat`."""
    done = subprocess.run(["jstat", "-gc", str(pid)], capture_output=True, text=True, check=False)
    lines = done.stdout.split("\n")
    if done.returncode != 0 or len(lines) < 2:
        return {}
    said = dict(zip(lines[0].split(), lines[1].split(), strict=False))
    kilobytes = {name: float(said[name]) for name in ("S0U", "S1U", "EU", "OU") if name in said}
    return {"heap": 1024 * sum(kilobytes.values()), "old": 1024 * kilobytes.get("OU", 0.0)}


def disk(folder: Path) -> int:
    """The bytes of all files below a folder, except those that are deleted meanwhile."""
    total = 0
    # Folders are deleted meanwhile, too, and other ways to list them would fail.
    for path, _, names in os.walk(folder):
        for file in (Path(path, name) for name in names):
            with contextlib.suppress(OSError):
                if not file.is_symlink():
                    total += file.stat().st_size
    return total
