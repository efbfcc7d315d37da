"""Replays a life, event by event, and rejects the first one that the protocol doesn't allow.

What is allowed is the model's to say: `model.recovery`, `model.start`, `model.executors`. The parts of a
checker keep the books that these are asked about. docs/model.md says which actions are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from model import recovery
from traces.books import Life, RejectedError, WrongError
from traces.epochs import Epochs
from traces.events import Event, read
from traces.files import Files
from traces.loads import Loads
from traces.plans import Plans
from traces.starts import Starts
from traces.ways import pairs

__all__ = ["Checker", "RejectedError", "Verdict", "check"]
#: Events that are shown before the one that is rejected.
SHOWN = 30
#: They tell in which ways state comes (`traces.ways`), or that something was not done.
NOTED = {
    "evacuation",
    "files here",
    "moves to",
    "order",
    "order closed",
    "quick replay",
    "rescued to",
    "rows on demand",
    "run ended",
    "standby",
    "standby closed",
    "swept",
    "upload refused",
}


@dataclass(frozen=True)
class Verdict:
    """How many events of a trace were looked at, and which ways of state met."""

    accepted: int
    unchecked: dict[str, str]  # Lives that cannot be checked, and why.
    pairs: list[str]  # Ways, `one + other`, that were under way for one partition at a time.


def check(folder: Path, under: Path | None = None) -> Verdict:
    """Checks the lives of a trace, all or `under` a directory; raises `RejectedError` for a wrong event."""
    accepted, unchecked, met = 0, {}, set[tuple[str, str]]()
    for checkpoint, events in read(folder, under).items():
        checker = Checker()
        checker.run(events)
        met |= pairs(events)
        if checker.life.why_unchecked is not None:
            unchecked[checkpoint] = checker.life.why_unchecked
        else:
            accepted += len(events)
    return Verdict(accepted, unchecked, sorted(" + ".join(pair) for pair in met))


class Checker:
    """Checks the events of one life."""

    def __init__(self) -> None:
        self.life = Life()
        starts, epochs = Starts(self.life), Epochs(self.life)
        loads, files, plans = Loads(self.life), Files(self.life), Plans(self.life)
        self._does: dict[str, Callable[[Event], None]] = {
            "arrived": loads.arrived,
            "awaits": loads.arrived,
            "committed": loads.committed,
            "deletes": files.deletes,
            "deletes entries": starts.deletes_entries,
            "deletes lost": files.deletes,
            "entry": starts.entry,
            "epoch": epochs.epoch,
            "loaded": loads.loaded,
            "opened": loads.opened,
            "plan": plans.plan,
            "plan forgotten": plans.forgotten,
            "recovery": loads.recovery,
            "rolled back": loads.rolled_back,
            "run begun": starts.begun,
            "run claimed": starts.claimed,
            "run claims": starts.claims,
            "switched": loads.switched,
            "uploaded": files.uploaded,
            "uploads": files.uploads,
            "wound back": epochs.wound_back,
        }

    def run(self, events: Iterable[Event]) -> None:
        seen: list[Event] = []
        for event in events:
            if self.life.history is None and event.name not in ("run claims", "wound back"):
                self.life.why_unchecked = "its beginning is not in the trace"
            if event.name not in NOTED and self.life.why_unchecked is None:
                try:
                    if event.name not in self._does:
                        raise WrongError(f"nobody knows what '{event.name}' is")
                    self._does[event.name](event)
                except WrongError as e:
                    raise RejectedError(event, str(e), seen[-SHOWN:]) from None
            seen.append(event)
        # The model only remembers this life.
        for memory in (recovery.needed, recovery.oldest_entry, recovery.owners):
            memory.cache_clear()
