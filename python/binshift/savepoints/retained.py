"""Tells which epochs can be kept, although others delete files and don't wait."""

from __future__ import annotations

import json

from binshift.control.damage import NOT_UNDERSTOOD
from binshift.control.directory import ControlDir
from binshift.control.files import Files
from binshift.control.savepoints import Savepoints
from binshift.errors import ConfigurationError
from binshift.numbers import is_whole

__all__ = ["chosen_epoch", "retained_epochs"]


def retained_epochs(files: Files) -> list[int]:
    """The committed epochs whose files nobody deletes who has decided by now what to delete; oldest first.

    Whoever retains n epochs, and decides while epoch N is the newest committed one, spares N - n + 2 and all
    later ones. An operator without bins takes a snapshot for committed that isn't yet, so it's not N - n + 1.
    Claims say how many epochs their runs retain. If none does, only the newest epoch counts.

    Winding back the logs brings no files back, so both logs must still have the epoch, and that of offsets the
    one before it, which a start reads as well.
    """
    committed, logged = files.numbers("commits"), set(files.numbers("offsets"))
    said = _retained(files)
    # After the logs, so that a run that is missing here can't have decided earlier than they were read.
    newest = max(committed, default=-1)
    first = newest - min(said, default=1) + 2
    layout = ControlDir(files).layout() or {}
    first = max(first, 0, int(layout.get("taken_over_at") or 0))
    older = [e for e in committed if first <= e < newest and {e, max(e - 1, 0)} <= logged]
    return [*older, *committed[-1:]]


def chosen_epoch(files: Files, epoch: int | None) -> int:
    """An epoch that can be kept: the one that is asked for, or the newest.

    Raises
    ------
    ConfigurationError
        If nothing is committed, or the epoch can't be kept.
    """
    there = retained_epochs(files)
    if not there:
        raise ConfigurationError(
            f"{files.name} has no committed epoch yet; let the query run one",
            condition="NO_EPOCH_COMMITTED",
            checkpoint=files.name,
        )
    if epoch is not None and epoch not in there:
        saved = ", ".join(f"{s.name} (epoch {s.epoch})" for s in Savepoints(files).all() if s.is_finished)
        raise ConfigurationError(
            f"epoch {epoch} of {files.name} is not retained; choose one of {_ranges(there)}, or a savepoint, "
            f"of which there are: {saved or 'none'}",
            condition="EPOCH_NOT_RETAINED",
            epoch=epoch,
        )
    return there[-1] if epoch is None else epoch


def _retained(files: Files) -> list[int]:
    """How many epochs the latest runs retain, as far as their claims say it."""
    found = []
    for n in files.numbers("binshift/runs"):
        try:
            found.append(json.loads(files.find(f"binshift/runs/{n}") or b"{}").get("retained"))
        except NOT_UNDERSTOOD:
            found.append(1)
    return [n for n in found if is_whole(n, 1)]


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers as text, such as `3, 5 to 9`."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))
