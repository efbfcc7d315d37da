"""Finds Spark's processes on this machine, and the ports on which they listen, from Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path

LISTENING = "0A"


def spark_processes(application: str) -> list[int]:
    """The JVM of the calling driver, and the executors of its application."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            command = _read(entry / "cmdline").split("\0")
            is_executor = "--app-id" in command and application in command
            is_driver = "java" in command[0] and _parent(entry) == os.getpid()
            if is_executor or is_driver:
                found.append(int(entry.name))
    return found


def children(pid: int) -> list[tuple[int, str]]:
    """The children of a process, with their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(entry) == pid:
            found.append((int(entry.name), _read(entry / "cmdline").split("\0")[0]))
    return found


def listening(pid: int) -> set[int]:
    """The TCP ports on which a process listens."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(fd.readlink())
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in _read(Path(f"/proc/{pid}/net/{table}")).splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in inodes:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def state(pid: int) -> str:
    """The letter that Linux has for the state of a process, such as T for stopped; empty once it is gone."""
    return _stat(Path(f"/proc/{pid}"))[0]


def _parent(process: Path) -> int:
    return int(_stat(process)[1])


def _stat(process: Path) -> list[str]:
    """The state of a process, its parent, and more."""
    stat = _read(process / "stat")
    return stat.rsplit(")", 1)[1].split() if stat else ["", "0"]


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""
