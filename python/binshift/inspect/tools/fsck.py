"""Checks a checkpoint: that its files are complete, and that each bin is at its owner and nowhere else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from binshift.control.savepoints import Savepoints
from binshift.errors import ConfigurationError, StateFormatError
from binshift.inspect.checkpoint import Checkpoint
from binshift.inspect.decoding.binning import bins_of_keys
from binshift.inspect.decoding.schema import Operator, Store
from binshift.inspect.facts import Settings
from binshift.inspect.source import Source, decoded, stored_rows
from binshift.inspect.storage.partition import Place
from binshift.inspect.tools.export import json_rows
from binshift.inspect.tools.finding import Finding, Severity
from binshift.inspect.tools.fsck_files import checksums, files_of

__all__ = ["Finding", "Severity", "fsck"]

#: How many characters of a key a message shows.
_SHOWN = 200


def fsck(checkpoint: Checkpoint, version: int | None = None) -> Iterator[Finding]:
    """Checks all files of a checkpoint, and all rows of one version.

    Files: it reads each batch of the logs, the routing log, savepoints, and the metadata and schemas of
    operators. For each store, it checks that every version from the oldest readable one on can be put
    together, that snapshots and the files that they refer to exist with the right sizes, that changelogs are
    complete, and that all checksums written by Spark are right.

    Rows: it checks that each can be decoded, that its row checksum (if any) is right, that its bin belongs to
    the partition that it is in and is the bin of its key (unless `bins_of_keys` can't tell), and that snapshots
    have as many rows as they say. It needs memory for a batch of rows, and a number for each family and bin.

    Parameters
    ----------
    checkpoint : Checkpoint
    version : int, optional
        The version whose rows are checked; by default the newest.

    Yields
    ------
    Finding
        Nothing, if all is well. Files that a running query purges meanwhile are reported as missing.
    """
    facts = checkpoint._facts
    at = facts.require_version(version)
    yield from _logs(checkpoint)
    yield from _savepoints(checkpoint)
    try:
        operators = facts.operators(at)
    except StateFormatError as error:
        yield Finding(Severity.DAMAGE, "state", str(error))
        return
    for operator in operators:
        for store in operator.stores:
            yield from _store(checkpoint, operator, store, at)
        yield from _strays(checkpoint, operator)


def _logs(checkpoint: Checkpoint) -> Iterator[Finding]:
    files, facts = checkpoint._facts.files, checkpoint._facts
    for name in ("offsets", "commits"):
        numbers = files.numbers(name)
        gaps = sorted(set(range(numbers[0], numbers[-1] + 1)) - set(numbers)) if numbers else []
        for batch in gaps:
            yield Finding(Severity.DAMAGE, f"{name}/{batch}", "is missing")
        yield from checksums(checkpoint, name)
    for batch in sorted(set(files.numbers("commits")) - set(files.numbers("offsets"))):
        if batch >= min(files.numbers("offsets"), default=0):
            yield Finding(Severity.DAMAGE, f"offsets/{batch}", "is missing")
    if not facts.is_binned:
        return
    yield from checksums(checkpoint, "binshift")
    yield from checksums(checkpoint, "binshift/routing")
    for file in facts.routing_files:
        try:
            facts.routing_entry(file)
        except StateFormatError as error:
            yield Finding(Severity.DAMAGE, f"binshift/routing/{file}", str(error))
    try:
        for file, what in facts.routing_problems():
            yield Finding(Severity.DAMAGE, f"binshift/routing/{file}", what)
    except StateFormatError:
        pass  # found above
    try:
        # Includes versions that are gone from the commit log, because replaying needs the oldest batch's table.
        facts.table(max(facts.first_binned_epoch, min(files.numbers("commits"), default=0)))
    except StateFormatError as error:
        yield Finding(Severity.DAMAGE, "binshift/routing", str(error))


def _savepoints(checkpoint: Checkpoint) -> Iterator[Finding]:
    files = checkpoint._facts.files
    savepoints = Savepoints(files)
    try:
        there = savepoints.all()
    except ConfigurationError as error:
        yield Finding(Severity.DAMAGE, "binshift/savepoints", str(error))
        return
    for savepoint in there:
        if not savepoint.is_finished:
            yield Finding(
                Severity.ORPHAN, savepoint.path, f"savepoint {savepoint.name} was begun and not finished"
            )
        for directory, names in (savepoint.files or {}).items():
            sizes = files.sizes(directory)
            for name, kept in names.items():
                if sizes.get(name) != kept.bytes:
                    has = f"has {sizes[name]} instead of {kept.bytes} bytes" if name in sizes else "is missing"
                    what = f"{has}, and savepoint {savepoint.name} needs it"
                    yield Finding(Severity.DAMAGE, f"{directory}/{name}", what)
        copied = set(files.below(savepoint.folder))
        for path in (f"{savepoint.folder}/{copy}" for copy in savepoint.copies):
            if path not in copied:
                yield Finding(Severity.DAMAGE, path, f"is missing, and savepoint {savepoint.name} needs it")
    for path in savepoints.leftovers():
        yield Finding(Severity.ORPHAN, path, "is left of a savepoint that is gone, or of a fork")


def _store(checkpoint: Checkpoint, operator: Operator, store: Store, version: int) -> Iterator[Finding]:
    try:
        settings = checkpoint._facts.settings(version)
        partitions = checkpoint._facts.partitions(operator, version)
    except StateFormatError as error:
        yield Finding(Severity.DAMAGE, f"operator {operator.id}, store {store.name}", str(error))
        return
    there = [int(n) for n in checkpoint._facts.files.directories(f"state/{operator.id}") if n.isdigit()]
    for partition in sorted({*there, *partitions}):
        place = Place(operator, store, partition)
        findings = list(files_of(checkpoint, place)) + list(_versions(checkpoint, place))
        yield from findings
        if partition in partitions and not any(f.severity is Severity.DAMAGE for f in findings):
            yield from _rows(checkpoint, place, version, settings)


def _versions(checkpoint: Checkpoint, place: Place) -> Iterator[Finding]:
    """Finds missing versions, except before the oldest readable one: those were purged by Spark."""
    facts = checkpoint._facts
    missing = []
    has_older = False
    for version in facts.versions:
        try:
            exists = place.partition in facts.partitions(place.operator, version)
            if exists:
                checkpoint._partitions.recipe(place, version)
        except StateFormatError as error:
            missing.append((version, has_older, error))
        else:
            has_older = has_older or exists
    for version, has_older_one, reason in missing:
        if has_older_one or version == facts.versions[-1]:
            yield Finding(Severity.DAMAGE, str(place), f"version {version}: {reason}")


def _rows(checkpoint: Checkpoint, place: Place, version: int, settings: Settings) -> Iterator[Finding]:
    facts = checkpoint._facts
    owner_of = dict(enumerate(facts.table(version - 1).assignment)) if place.operator.is_binned else {}
    rows = 0
    rows_of_bins: Counter[int | None] = Counter()
    strangers: dict[tuple[str, int], _Strangers] = {}
    try:
        with checkpoint._partitions.at(place, version, settings) as database:
            known = {family.name: family for family in place.store.families}
            # Rows of a state variable that the query no longer has are kept, without a schema to decode them.
            for name in [*known, *sorted(set(database.families) - set(known))]:
                family = known.get(name) or replace(place.store.families[0], name=name)
                source = Source(place.operator, store=place.store, family=family, version=version)
                for chunk in stored_rows(source, database, settings):
                    rows += len(chunk)
                    rows_of_bins.update(bin for _, _, bin in chunk)
                    if name in known:
                        batch = decoded(source, place.partition, chunk, settings)
                        if place.operator.is_binned and not facts.keys_change(place.operator.id):
                            _find_strangers(source, batch, facts.bins or 1, strangers)
    except StateFormatError as error:
        yield Finding(Severity.DAMAGE, str(place), f"version {version}: {error}")
        return
    found_in = {bin: count for bin, count in rows_of_bins.items() if bin is not None}
    misplaced = {bin: count for bin, count in found_in.items() if owner_of.get(bin) != place.partition}
    for bin, count in sorted(misplaced.items()):
        owner = f"partition {owner_of[bin]}" if bin in owner_of else "no partition, since there is no such bin"
        yield Finding(
            Severity.DAMAGE,
            str(place),
            f"version {version}: {count} rows are of bin {bin}, which belongs to {owner}",
        )
    for (name, bin), found in sorted(strangers.items()):
        yield Finding(
            Severity.DAMAGE,
            str(place),
            f"version {version}: {found.rows} rows of family {name} are in bin {bin}, but their keys are of "
            f"other bins; the first one is {found.key}, of bin {found.home}",
        )
    recipe = checkpoint._partitions.recipe(place, version)
    if recipe.snapshot and not recipe.changelogs:
        yield from _miscounted(checkpoint, recipe.snapshot, rows, found_in)


def _miscounted(
    checkpoint: Checkpoint, snapshot: str, rows: int, rows_of_bins: dict[int, int]
) -> Iterator[Finding]:
    """What a snapshot says of its numbers of rows that isn't so."""
    try:
        said, said_of_bins = checkpoint._partitions.rows_said(snapshot)
    except StateFormatError as error:
        yield Finding(Severity.DAMAGE, snapshot, str(error))
        return
    if said >= 0 and said != rows:
        yield Finding(Severity.DAMAGE, snapshot, f"says that it has {said} rows, and has {rows}")
    if said_of_bins is None:
        return
    for bin in sorted({*said_of_bins, *rows_of_bins}):
        if (n := said_of_bins.get(bin, 0)) != (has := rows_of_bins.get(bin, 0)):
            yield Finding(Severity.DAMAGE, snapshot, f"says that bin {bin} has {n} rows, and it has {has}")


@dataclass(slots=True)
class _Strangers:
    """Rows that are not in the bin of their key: how many, and the key and bin of the first."""

    rows: int
    key: str
    home: int


def _find_strangers(
    source: Source, batch: pa.RecordBatch, bins: int, found: dict[tuple[str, int], _Strangers]
) -> None:
    """Adds those of a batch, by family and bin."""
    homes = bins_of_keys(batch.column("key"), source.store, source.family, bins)
    if homes is None:
        return
    stored = np.asarray(batch.column("bin"))
    wrong = np.flatnonzero(homes != stored)
    for bin, first, count in zip(*np.unique(stored[wrong], return_index=True, return_counts=True), strict=True):
        at = int(wrong[first])
        if known := found.get((source.family.name, int(bin))):
            known.rows += int(count)
        else:
            key = json.dumps(json_rows(batch.slice(at, 1))[0]["key"], ensure_ascii=False)
            found[source.family.name, int(bin)] = _Strangers(int(count), key[:_SHOWN], int(homes[at]))


def _strays(checkpoint: Checkpoint, operator: Operator) -> Iterator[Finding]:
    """Partitions that belong to no version. Retired ones stay until nothing needs them any more."""
    facts = checkpoint._facts
    try:
        most = max(len(facts.partitions(operator, v)) for v in facts.versions)
    except StateFormatError:
        return  # found before: a routing table or the settings of a batch are damaged
    try:
        savepoints = Savepoints(facts.files).all()
    except ConfigurationError:
        return  # found before
    kept = {"/".join(d.split("/")[:3]) for s in savepoints for d in s.files or {}}
    for name in facts.files.directories(f"state/{operator.id}"):
        if name.isdigit() and int(name) >= most and f"state/{operator.id}/{name}" not in kept:
            yield Finding(Severity.ORPHAN, f"state/{operator.id}/{name}", "no version has this partition")
