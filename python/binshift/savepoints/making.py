"""Makes and drops savepoints."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress

from binshift.arguments import checked
from binshift.control.damage import NOT_UNDERSTOOD
from binshift.control.directory import open_directory
from binshift.control.files import Files
from binshift.control.savepoints import Savepoint, Savepoints
from binshift.errors import ConfigurationError, StateFormatError, StorageError, impossible
from binshift.numbers import is_whole
from binshift.savepoints.needed import ListedOnce, Needed, in_parallel
from binshift.savepoints.retained import chosen_epoch, retained_epochs

__all__ = ["create", "drop", "get", "of"]

#: The longest time that making one may take. Whoever deletes files waits for it twice as long.
_MOST_SECONDS = 1800.0
#: How often another epoch is tried, because epochs were committed faster than it could be begun.
_TRIES = 20


@checked(ConfigurationError)
def create(checkpoint: str | os.PathLike[str], name: str, *, epoch: int | None = None) -> Savepoint:
    """Makes a savepoint of a committed epoch.

    The query may be running, and isn't asked. No state is copied, only the logs of the epoch and the like.

    Parameters
    ----------
    checkpoint : str or path
        The query's `checkpointLocation`: a path, or a URI that pyarrow knows.
    name : str
        Up to 100 letters, digits, dots, dashes and underscores.
    epoch : int, optional
        One that is still retained; by default the newest.

    Returns
    -------
    Savepoint

    Raises
    ------
    ConfigurationError
        If it is no checkpoint of binshift's, nothing is committed yet, the epoch isn't retained, or the name is
        taken.
    StateFormatError
        If files of the epoch's state are missing.
    """
    if not (epoch is None or is_whole(epoch)):
        raise impossible(ConfigurationError, "epoch", epoch, "a whole number of at least 0")
    files = open_directory(os.fspath(checkpoint)).files
    there = Savepoints(files)
    there.delete_leftovers()
    for left in reversed(range(_TRIES)):
        begun = _begun(files, there, name, epoch)
        try:
            return _finished(files, there, begun)
        except BaseException as error:
            # If the storage refuses this, too, the first error is the one to be told.
            with suppress(StorageError):
                there.delete(begun)
            # Spark keeps the logs of a number of epochs only, which may be one.
            is_purged = isinstance(error, StateFormatError) and chosen_epoch(files, epoch) > begun.epoch
            if not (is_purged and left):
                raise
    raise AssertionError


def of(checkpoint: str | os.PathLike[str]) -> list[Savepoint]:
    """The savepoints of a checkpoint, oldest first, including those that were begun and not finished."""
    return Savepoints(Files(checkpoint)).all()


@checked(ConfigurationError)
def get(checkpoint: str | os.PathLike[str], name: str) -> Savepoint:
    """The finished savepoint of a name.

    Raises
    ------
    ConfigurationError
        If there is none.
    """
    return Savepoints(Files(checkpoint)).get(name)


@checked(ConfigurationError)
def drop(checkpoint: str | os.PathLike[str], name: str) -> None:
    """Drops a savepoint. The query deletes its files when it cleans up, unless something else needs them.

    Raises
    ------
    ConfigurationError
        If there is no savepoint of this name.
    """
    there = Savepoints(Files(checkpoint))
    named = [s for s in there.all() if s.name == name]
    if not named:
        there.get(name)
    for savepoint in named:
        there.delete(savepoint)


def _begun(files: Files, there: Savepoints, name: str, epoch: int | None) -> Savepoint:
    """Begins a savepoint of an epoch.

    Whoever deletes files decides first what to delete, and looks for savepoints then. If it doesn't see this
    one yet, it has decided while the epoch was retained, and spares the epoch's files.
    """
    for _ in range(_TRIES):
        begun = there.begin(name, chosen_epoch(files, epoch))
        if begun.epoch in retained_epochs(files):
            return begun
        there.delete(begun)
    raise StorageError(
        f"epochs of {files.name} are committed faster than a file is written there, so none of {_TRIES} "
        "could be kept; give the query a trigger interval, or make the savepoint nearer to the store",
        path=files.name,
    )


def _finished(files: Files, there: Savepoints, begun: Savepoint) -> Savepoint:
    # The one stands still while the machine sleeps, and somebody may set the other back.
    started = time.monotonic(), time.time()
    once = ListedOnce(files)
    needed = Needed(once, begun.version)
    copies = _copies(once, begun, needed)
    in_parallel(lambda path: once.write(f"{begun.folder}/{path}", once.read(path)), copies)
    finished = there.finish(begun, needed.files(), copies)
    if max(time.monotonic() - started[0], time.time() - started[1]) > _MOST_SECONDS:
        there.delete(finished)
        raise StorageError(
            f"the savepoint {begun.name} of {files.name} was given up, because it took longer than "
            f"{_MOST_SECONDS:g} s to find its files; try again nearer to the store",
            path=files.name,
        )
    return finished


def _copies(files: ListedOnce, savepoint: Savepoint, needed: Needed) -> list[str]:
    """The files to be copied: all but those of versions, because they are purged, or written over."""
    epoch = savepoint.epoch
    paths = [*_logs(files, epoch), "metadata", *files.below("sources"), *_control_files(files, epoch, needed)]
    for operator in files.directories("state"):
        paths += [p for p in _descriptions(files, f"state/{operator}") if not _is_later(p, epoch)]
    # Checksums of Hadoop's, which a reader can do without, and what somebody is just writing.
    return [p for p in paths if not p.rpartition("/")[2].startswith(".")]


def _logs(files: Files, epoch: int) -> list[str]:
    """The logs of the last two epochs. Relies on Spark: a query doesn't start without both offsets."""
    there = {log: set(files.numbers(log)) for log in ("offsets", "commits")}
    before = epoch - 1
    for log, e in (("offsets", before), ("offsets", epoch), ("commits", epoch)):
        if e >= 0 and e not in there[log]:
            raise StateFormatError(
                f"{log}/{e} is missing from {files.name}: Spark has purged it; set "
                "spark.sql.streaming.minBatchesToRetain to 2 or more, or try again",
                condition="FILE_MISSING",
                file=f"{log}/{e}",
            )
    return [f"{log}/{e}" for log, numbers in there.items() for e in (before, epoch) if e in numbers]


def _descriptions(files: Files, operator: str) -> Iterator[str]:
    """The files that describe an operator and its state.

    Relies on Spark: they are beside the partitions, or in `_metadata` directories of the stores of partition 0.
    """
    for folder in files.directories(operator):
        if not folder.isdigit():
            yield from files.below(f"{operator}/{folder}")
    for store in (
        "",
        *(f"{s}/" for s in files.directories(f"{operator}/0") if s not in ("SSTs", "logs", "_metadata")),
    ):
        yield from files.below(f"{operator}/0/{store}_metadata")


def _is_later(path: str, epoch: int) -> bool:
    """True for the metadata of an operator that belongs to a later epoch.

    Relies on Spark: it is in `state/<operator>/_metadata/v2/<epoch>`.
    """
    folder, _, name = path.rpartition("/")
    return folder.endswith("/_metadata/v2") and name.isdigit() and int(name) > epoch


def _control_files(files: Files, epoch: int, needed: Needed) -> list[str]:
    """The files in `binshift/` by which the state of an epoch is found.

    Migrations and requests belong to the query. Claims of runs name the tables of their first epochs; those of
    runs that began later would mislead a fork.
    """
    names = ["layout.json"]
    for entry in needed.facts.routing_back_from(epoch):
        names.append(f"routing/{entry.file}")
        if entry.epoch < needed.oldest:
            break
    names += [f"runs/{n}" for n in files.numbers("binshift/runs") if _began(files, n) <= epoch]
    names += [f"ids/{n}" for n in files.numbers("binshift/ids") if needed.oldest <= n <= epoch + 1]
    names += [f"changed_keys/{n}" for n in files.numbers("binshift/changed_keys")]
    there = files.sizes("binshift")
    names += [n for n in ("statistics.json", "runs.json") if n in there]
    return [f"binshift/{n}" for n in names]


def _began(files: Files, run: int) -> int:
    """The first epoch of a run; -1 if its claim is gone, or isn't understood."""
    try:
        return int(json.loads(files.find(f"binshift/runs/{run}") or b"{}").get("began", -1))
    except NOT_UNDERSTOOD:
        return -1
