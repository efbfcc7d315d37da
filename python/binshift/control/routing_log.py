"""Finds the routing entries that were in force, by the names in Spark's log of offsets and the claims of runs.

Each entry is a file that is written once, `routing/<epoch>-<checksum>`, and names the entry that it follows. If
no named entry leads back to an entry, it was written by a driver that got no further. Files of older versions
are named by their epoch only.
"""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from binshift.control.damage import NOT_UNDERSTOOD
from binshift.control.files import Files
from binshift.control.routing_entry import RoutingEntry

__all__ = ["ENTRY_KEY", "Logged", "Named", "RoutingLog"]

#: The setting under which the routing entry in force is logged with an epoch's offsets.
ENTRY_KEY = "spark.sql.streaming.stateStore.binshift.routingEntry"
_FILE = re.compile(r"\d+(-[0-9a-f]{8})?")
#: How many epochs are searched for the name of an entry.
_MAX_LOGGED = 8


class Logged(NamedTuple):
    """The settings that were logged with an epoch, and the time in milliseconds since 1970."""

    conf: Mapping[str, Any]
    at_ms: int | None

    @classmethod
    def of(cls, text: bytes | None) -> Logged | None:
        """Parses a file of the log of offsets; None if there is none.

        Relies on Spark: its second line has the settings and the time.
        """
        if text is None:
            return None
        try:
            data = json.loads(text.split(b"\n", 2)[1])
            return cls(dict(data.get("conf", {})), data.get("batchTimestampMs"))
        except NOT_UNDERSTOOD:
            return cls({}, None)


class Named(NamedTuple):
    """An epoch at which an entry was in force, and the name of its file."""

    at: int
    file: str


class RoutingLog:
    """The routing entries of a checkpoint, as of the time when they were read.

    Parameters
    ----------
    files : Files
        The checkpoint's directory.
    read : callable
        Reads an entry by the path of its file below `binshift`; None if there is none.
    """

    def __init__(self, files: Files, read: Callable[[str], RoutingEntry | None]) -> None:
        self._files = files
        # Caches per instance, so that they are freed with it.
        self.logged = lru_cache(maxsize=64)(lambda epoch: Logged.of(files.find(f"offsets/{epoch}")))
        self._find = lru_cache(maxsize=512)(read)

    @cached_property
    def listed(self) -> list[str]:
        """The files of entries, in the order of their epochs. Some may never have been in force."""
        found = [name for name in self._files.sizes("binshift/routing") if _FILE.fullmatch(name)]
        return sorted(found, key=lambda name: (epoch_of(name), name))

    @cached_property
    def _epochs(self) -> list[int]:
        return self._files.numbers("offsets")

    @cached_property
    def _claims(self) -> list[dict[str, Any]]:
        """The runs, newest first."""
        numbers = reversed(self._files.numbers("binshift/runs"))
        texts = [self._files.find(f"binshift/runs/{n}") for n in numbers]
        runs = [run for text in texts if (run := _json(text)) is not None and not run.get("withdrawn")]
        old = _json(self._files.find("binshift/runs.json")) or {}
        return [*runs, *reversed(old.get("runs", []))]

    def named(self, epoch: int) -> Named | None:
        """The entry with which an epoch ran, by its offsets, or by the claim of the run that began with it."""
        logged = self.logged(epoch)
        if logged is None:
            return None
        if (name := logged.conf.get(ENTRY_KEY)) is not None:
            return Named(epoch, _file(name))
        for run in self._claims:
            if run.get("began") == epoch and logged.at_ms is not None and _millis(run) == logged.at_ms:
                return Named(epoch, _file(run["routing"]))
        return None

    def newest_named(self, first: int = 0) -> Named | None:
        """The entry of the newest epoch for which it is known."""
        recent = [e for e in self._epochs[-_MAX_LOGGED:] if e >= first]
        return next((n for e in reversed(recent) if (n := self.named(e)) is not None), None)

    def _claimed_after(self, epoch: int) -> Named | None:
        """The entry of the earliest known run that began after an epoch, to go back from there."""
        after = list(itertools.takewhile(lambda run: run.get("began", -1) > epoch, self._claims))
        named = Named(after[-1]["began"], _file(after[-1]["routing"])) if after else None
        return named if named is not None and self.entry(named.file) is not None else None

    def at(self, epoch: int, first: int = 0) -> RoutingEntry | None:
        """The entry in force at an epoch; None if it is missing.

        Parameters
        ----------
        first : int
            The first epoch that has one.
        """
        newest = self.newest_named(first)
        later = newest if newest is not None and newest.at > epoch else None
        named = self.named(epoch) or later or self._claimed_after(epoch) or newest
        if named is None:
            # If nothing in the checkpoint names an entry, the newest one up to the epoch is in force.
            file = next((f for f in reversed(self.listed) if epoch_of(f) <= epoch), None)
        else:
            file = named.file
        entry = None if file is None else self.entry(file)
        while entry is not None and entry.epoch > epoch:
            entry = self.before(entry)
        return entry

    def entry(self, file: str) -> RoutingEntry | None:
        """An entry by its name, which may have been written before files had these names."""
        found = self._find(f"routing/{file}")
        if found is None and "-" in file:
            # Older versions moved entries to "aside" that might have been in force for another run.
            older = (self._find(f"{folder}/{epoch_of(file)}") for folder in ("routing", "aside"))
            found = next((e for e in older if e is not None and f"{e.epoch}-{checksum(e):08x}" == file), None)
        return found

    def before(self, entry: RoutingEntry) -> RoutingEntry | None:
        """The entry that another one follows; None if there is none, or it has been deleted."""
        return None if entry.previous is None else self.entry(entry.previous)

    def is_lost(self, file: str) -> bool:
        """True if a missing entry was lost. Otherwise it was pruned, which deletes all older ones before."""
        return any(epoch_of(f) < epoch_of(file) for f in self.listed)

    def back_from(self, epoch: int, first: int = 0) -> Iterator[RoutingEntry]:
        """The entries from the one in force at an epoch back to the oldest."""
        entry = self.at(epoch, first)
        while entry is not None:
            yield entry
            entry = self.before(entry)

    def prepared(self, logged: int, first: int = 0) -> RoutingEntry | None:
        """The entry for an epoch that isn't logged yet, which follows the one in force."""
        now = self.at(logged, first)
        names = set() if now is None else {now.file}
        if now is not None and "-" not in now.file:
            names.add(f"{now.epoch}-{checksum(now):08x}")
        later = [self.entry(f) for f in self.listed if epoch_of(f) == logged + 1]
        found = [e for e in later if e is not None and e.previous in names]
        return max(found, key=lambda e: (e.epoch, e.written_at), default=None)


def epoch_of(file: str) -> int:
    """The epoch of an entry's file."""
    return int(file.partition("-")[0])


def checksum(entry: RoutingEntry) -> int:
    """The checksum of a table, by which older entries are named."""
    table = entry.table
    return zlib.crc32(f"{table.partitions}:{','.join(map(str, table.assignment))}".encode())


def _file(name: str) -> str:
    return str(name).replace(":", "-")


def _json(text: bytes | None) -> dict[str, Any] | None:
    try:
        data = None if text is None else json.loads(text)
    except NOT_UNDERSTOOD:
        return None
    return data if isinstance(data, dict) else None


def _millis(run: Mapping[str, Any]) -> int | None:
    try:
        return round(datetime.fromisoformat(run["logged_at"]).timestamp() * 1000)
    except NOT_UNDERSTOOD:
        return None
