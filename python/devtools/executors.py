"""Finds the processes of Spark's executors on this machine, in Linux."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

__all__ = ["executor_processes"]


def executor_processes(application: str) -> dict[str, int]:
    """Processes of an application's executors, by the id of the executor."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            options = dict(pairwise((process / "cmdline").read_text().split("\0")))
        except OSError:  # it has ended
            continue
        if options.get("--app-id") == application:
            found[options["--executor-id"]] = int(process.name)
    return found
