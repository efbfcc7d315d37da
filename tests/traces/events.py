"""Reads what processes have written into a trace, and brings it into an order in which it can have happened.

A process writes its events in their order. Between processes, what an event builds on comes before it: the
entry that is named, the claim before, the epoch that was logged, the attempt that was committed. Clocks only
decide where nothing else does.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STORE = re.compile(r"(.*)/state/(\d+)/(\d+)(?:/([^/]+))?")
#: A file of a version: its number, the id of the attempt under checkpoint format 2, and its kind.
_FILE = re.compile(r"(\d+)(?:_([^.]+))?\.(zip|changelog)")

Fact = tuple[Any, ...]


@dataclass(frozen=True)
class Store:
    """A store of a partition."""

    operator: int
    partition: int
    name: str

    def peer(self, partition: int) -> Store:
        return Store(self.operator, partition, self.name)


@dataclass(frozen=True, eq=False)
class Event:
    """A line of a trace; `store` is missing from what concerns the query as a whole."""

    name: str
    checkpoint: str
    store: Store | None
    process: str
    n: int
    t: int
    values: dict[str, Any]

    @staticmethod
    def of(line: dict[str, Any]) -> Event:
        values = dict(line)
        name, folder = values.pop("event"), values.pop("dir")
        process, n, t = values.pop("process"), values.pop("n"), values.pop("t")
        checkpoint, store = place(folder)
        return Event(name, checkpoint, store, process, n, t, values)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str, otherwise: Any = None) -> Any:
        return self.values.get(key, otherwise)

    @property
    def own(self) -> Store:
        """Its store, of an event that has one."""
        assert self.store is not None, self
        return self.store

    def __str__(self) -> str:
        where = "" if self.store is None else f" {self.store.operator}/{self.store.partition}/{self.store.name}"
        values = " ".join(f"{key}={json.dumps(value)[:200]}" for key, value in self.values.items())
        return f"{self.t} {self.process} {self.n}: {self.name}{where} {values}"


@dataclass(frozen=True)
class VersionFile:
    """A changelog or a snapshot, by the name of its file."""

    store: Store
    version: int
    id: str | None
    is_snapshot: bool


def place(folder: str) -> tuple[str, Store | None]:
    """The checkpoint that a directory is of, and the store if it is that of one."""
    found = _STORE.fullmatch(folder)
    if found is None:
        return folder, None
    checkpoint, operator, partition, name = found.groups()
    return checkpoint, Store(int(operator), int(partition), name or "default")


def version_file(path: str) -> VersionFile | None:
    folder, _, name = path.rpartition("/")
    found, (_, store) = _FILE.fullmatch(name), place(folder)
    if found is None or store is None:
        return None
    version, id, ending = found.groups()
    return VersionFile(store, int(version), id, ending == "zip")


def bins(ranges: str) -> list[int]:
    """The bins that ranges such as `0-3,7` name."""
    found: list[int] = []
    for part in ranges.split(",") if ranges else []:
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def read(folder: Path, under: Path | None = None) -> dict[str, list[Event]]:
    """The events of each checkpoint, all or `under` a directory, in an order in which they can have come."""
    lives: dict[str, list[Event]] = defaultdict(list)
    for file in sorted(folder.glob("*.jsonl")):
        for event in _lines(file, "" if under is None else f'"dir":"{under}'):
            lives[event.checkpoint].append(event)
    return {checkpoint: ordered(events) for checkpoint, events in lives.items()}


def _lines(file: Path, wanted: str) -> Iterator[Event]:
    text = file.read_text(encoding="utf-8")
    # The process was killed while it wrote the last one.
    whole = text[: text.rfind("\n") + 1]
    for line in whole.splitlines():
        if wanted in line:
            yield Event.of(json.loads(line))


def ordered(events: Iterable[Event]) -> list[Event]:
    by_process: dict[str, list[Event]] = defaultdict(list)
    given: dict[Fact, int] = defaultdict(int)
    for event in events:
        by_process[event.process].append(event)
        for fact in _gives(event):
            given[fact] += 1
    queues = {p: iter(sorted(of, key=lambda e: e.n)) for p, of in by_process.items()}
    ready: list[tuple[int, str, int, Event]] = []
    waiting: dict[Fact, list[Event]] = defaultdict(list)
    known: set[Fact] = set()
    result: list[Event] = []

    def offer(event: Event | None) -> None:
        if event is None:
            return
        missing = next((f for f in _needs(event) if f in given and f not in known), None)
        if missing is None:
            heapq.heappush(ready, (event.t, event.process, event.n, event))
        else:
            waiting[missing].append(event)

    for queue in queues.values():
        offer(next(queue, None))
    while ready or waiting:
        if not ready or _is_late(ready[0][-1], waiting):
            # What it needs comes later in its own process, as with a late attempt; or after the logs were wound
            # back, which nobody does while a process uses them, as with a reader of the last version. The first
            # goes on.
            stuck = _first(waiting)
            for of in waiting.values():
                if stuck in of:
                    of.remove(stuck)
            waiting = defaultdict(list, {f: of for f, of in waiting.items() if of})
            heapq.heappush(ready, (stuck.t, stuck.process, stuck.n, stuck))
        event = heapq.heappop(ready)[-1]
        result.append(event)
        for fact in _gives(event):
            if fact not in known:
                known.add(fact)
                for other in waiting.pop(fact, []):
                    offer(other)
        offer(next(queues[event.process], None))
    return result


def _is_late(next_one: Event, waiting: dict[Fact, list[Event]]) -> bool:
    return next_one.name == "wound back" and bool(waiting) and _first(waiting).t < next_one.t


def _first(waiting: dict[Fact, list[Event]]) -> Event:
    return min((e for of in waiting.values() for e in of), key=lambda e: e.t)


def _gives(e: Event) -> Iterator[Fact]:
    match e.name:
        case "entry":
            yield ("entry", e["entry"])
        case "run claimed":
            yield ("claim", e["number"])
        case "epoch":
            yield ("logged", e["epoch"], e.get("logged_at"))
            yield ("planned", e["run"], e["epoch"])
            yield ("planned", None, e["epoch"])
        case "committed":
            yield ("committed", e.store, e["version"], e.get("id"))
            yield ("attempt", e["version"], e.get("id"))


def _needs(e: Event) -> Iterator[Fact]:
    match e.name:
        case "run claims":
            yield ("claim", e["number"] - 1)
        case "run claimed":
            yield ("claim", e["number"] - 1)
        case "epoch":
            yield ("entry", e["entry"])
            if "named" in e.values:
                yield ("entry", e["named"])
            for partitions in e.get("ids", {}).values():
                for id in (id for ids in partitions for id in ids):
                    yield ("attempt", e["epoch"], id)
        case "opened" | "arrived" | "awaits" | "recovery":
            yield ("planned", e.get("run"), e["version"])
        case "loaded":
            yield ("entry", e["entry"])
            yield ("logged", e["version"], e.get("logged_at"))
            if "id" in e.values:
                yield ("committed", e.store, e["version"], e["id"])
