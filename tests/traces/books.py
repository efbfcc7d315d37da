"""Notes about a life, which are taken while its events are replayed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from traces.events import Event, Store, VersionFile
from traces.history import STOCK, History, Log, Rows


class WrongError(Exception):
    """Explains why the protocol doesn't allow an event."""


class RejectedError(AssertionError):
    """An event that the protocol does not allow."""

    def __init__(self, event: Event, why: str, before: Iterable[Event]) -> None:
        shown = "\n".join(f"  {e}" for e in before)
        super().__init__(f"{why}\nrejected: {event}\nin {event.checkpoint}, after:\n{shown}")
        self.event, self.why = event, why


@dataclass
class Instance:
    """An executor's store in a run: the rows of each bin, by the epochs that made them."""

    version: int
    id: str | None
    rows: dict[int, Rows]
    record: int | None = None
    #: It was opened anew, so its id is that of the checkpoint, or it has none.
    is_new: bool = False


@dataclass
class Life:
    """The books of one checkpoint."""

    history: History | None = None
    why_unchecked: str | None = None
    instances: dict[tuple[str, str, Store], Instance] = field(default_factory=dict)
    #: The commits of attempts, and the record from which each was made.
    attempts: dict[VersionFile, dict[int, Rows]] = field(default_factory=dict)
    #: Snapshots that are written before their task has committed.
    early: dict[VersionFile, Event] = field(default_factory=dict)
    #: Uploads that have begun. The file may be there if the process was killed before it could say so.
    begun: set[VersionFile] = field(default_factory=set)
    records: dict[tuple[str, Store, int], int | None] = field(default_factory=dict)
    plans: set[str] = field(default_factory=set)  # That were ever accepted.
    plan_of: dict[str, str] = field(default_factory=dict)  # By the names of the files that are there.
    lost: set[tuple[int, int]] = field(default_factory=set)
    starting: dict[str, tuple[Event, str | None]] = field(default_factory=dict)
    claimants: dict[int, str] = field(default_factory=dict)
    awaited: dict[tuple[str, Store], set[int]] = field(default_factory=lambda: defaultdict(set))


class Part:
    """Replays events of some kind; all parts of a checker share the life."""

    def __init__(self, life: Life) -> None:
        self.life = life

    @property
    def h(self) -> History:
        assert self.life.history is not None
        return self.life.history

    def log(self, epoch: int, record: int, named: str | None, partitions: int) -> None:
        assert epoch == len(self.h.offsets)
        self.h.offsets.append(Log(record, named, partitions))
        self.h.changed()

    def stock(self, epochs: int) -> None:
        """Epochs before the takeover, of which there are no events."""
        while len(self.h.offsets) < epochs:
            self.h.offsets.append(Log(STOCK, None, 0))
        self.h.commits = max(self.h.commits, epochs)
        self.h.changed()

    def must_be_there(self, file: VersionFile) -> None:
        """Notes that a file exists whose upload had begun when its process was killed."""
        life = self.life
        if file in life.begun and file not in self.h.snapshots and file in life.attempts:
            self.h.snapshots[file] = life.attempts[file]
            self.h.files_changed()
