"""Finds what stands in the way of a rescale: in a file system, a checkpoint, or a running query's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from binshift import _version
from binshift.control.checks import Check, Verdict
from binshift.control.directory import ControlDir
from binshift.control.files import Files
from binshift.control.mailbox import Mailbox
from binshift.control.trial import try_files
from binshift.errors import BinshiftError, ConfigurationError, MigrationTimeout, StorageError
from binshift.session import CHANGELOG_KEY, PROVIDER, PROVIDER_KEY, STOCK_PROVIDER

__all__ = ["examine", "settings_checks"]

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_SPECULATION = "spark.speculation"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_LOCALITY = ("spark.locality.wait.process", "spark.locality.wait")
#: Spark's default. With a shorter wait, a task soon begins elsewhere, and loads the partition's state there.
_LOCALITY_SECONDS = 3.0
#: With fewer versions than this, a restored backup has nothing to go back to; Spark's default is 100.
_FEW_VERSIONS = 10
#: A partition with fewer bins cannot be balanced well.
_FEW_BINS = 8
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 0.001}


def examine(files: Files, wait: float) -> Iterator[Check]:
    """Tries a checkpoint's file system, looks into the checkpoint, and asks its query if it runs.

    No file stays behind: files that it writes are deleted, and a request that nobody answers is taken back.

    Parameters
    ----------
    files : Files
        The checkpoint's directory, or the place of a future one.
    wait : float
        Seconds for the query to answer; 0 asks nothing.
    """
    is_there = files.exists("")
    tried = try_files(files)
    yield tried
    if tried.verdict is Verdict.PROBLEM:
        return
    if not is_there:
        yield Check(
            "checkpoint",
            Verdict.ADVICE,
            f"{files.name} does not exist yet",
            "start a query on it; if one has run, give its checkpointLocation",
        )
        return
    directory = ControlDir(files)
    try:
        layout = directory.layout()
        if layout is None:
            yield _without_bins(directory)
            return
        table = directory.routing()
    except StorageError as error:
        yield Check("checkpoint", Verdict.PROBLEM, str(error))
        return
    except ConfigurationError as error:
        yield Check("checkpoint", Verdict.PROBLEM, str(error), "check all of it with 'binshift fsck'")
        return
    found = f"{table.bins} bins in {table.partitions} partitions, Spark {layout['spark_version']}"
    yield Check("checkpoint", Verdict.FINE, found)
    yield from _bins(directory.uri, table.bins, table.partitions)
    yield from _changelogs(directory, layout)
    if wait > 0:
        yield from _query(directory, wait)


def settings_checks(told: dict[str, Any], scheme: str) -> Iterator[Check]:
    """Checks a running query's settings.

    Parameters
    ----------
    told : dict
        The query's answer to the request `settings`.
    scheme : str
        Scheme of the checkpoint's URI, such as `s3a`; empty for a path.
    """
    settings: dict[str, str] = told["settings"]
    if told["binshift"] != _version.version:
        yield Check(
            "versions",
            Verdict.ADVICE,
            f"the query has binshift {told['binshift']}, this program {_version.version}",
            "install the same version in both places",
        )
    if settings.get(CHANGELOG_KEY, "false").lower() != "true":
        yield _without_changelogs(f"{CHANGELOG_KEY} is false")
    yield from _places(told, settings)
    retained = int(settings.get(_RETAIN, 100))
    if retained < _FEW_VERSIONS:
        yield Check(
            "retention",
            Verdict.ADVICE,
            f"{_RETAIN} = {retained}",
            f"retain {_FEW_VERSIONS} or more, so that a copy of the checkpoint has versions to go back to",
        )
    if settings.get(_SPECULATION, "false").lower() == "true" and settings.get(_FORMAT, "1") == "1":
        yield Check(
            "speculation",
            Verdict.ADVICE,
            f"{_SPECULATION} is true under checkpoint format 1, in which attempts of a task share their files",
            f"turn it off for this query; a new checkpoint can have {_FORMAT} = 2, in which they don't",
        )
    if scheme.startswith("s3") and "Abortable" not in settings.get(_FILE_MANAGER, ""):
        yield Check(
            "object store",
            Verdict.ADVICE,
            f"Spark writes its logs by renaming, which {scheme} does by copying",
            f"set {_FILE_MANAGER} to {_ABORTABLE}, of spark-hadoop-cloud",
        )


def _places(told: dict[str, Any], settings: dict[str, str]) -> Iterator[Check]:
    """Checks executors, their slots, and how long tasks wait for the executor that has their state."""
    partitions, slots = told["partitions"], told["slots"]
    found = f"{told['executors']} executors with {slots} slots, {partitions} partitions"
    if told["is_local"]:
        yield Check("executors", Verdict.FINE, f"the driver itself, {slots} slots, {partitions} partitions")
        return
    if partitions is not None and partitions > slots:
        yield Check(
            "executors",
            Verdict.ADVICE,
            found,
            "add executors and 'binshift rebalance', or rescale to as many partitions as there are slots",
        )
    else:
        yield Check("executors", Verdict.FINE, found)
    name = next((n for n in _LOCALITY if n in settings), None)
    wait = _LOCALITY_SECONDS if name is None else seconds_of(settings[name])
    if wait < _LOCALITY_SECONDS:
        yield Check(
            "locality",
            Verdict.ADVICE,
            f"{name} = {settings[name or '']}",
            "set it to some seconds, because a task that runs on another executor has to load its state there",
        )


def seconds_of(time_: str) -> float:
    """Parses a time in Spark's format: `30s`, `500ms`, `2min`, or milliseconds without a unit."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", time_.lower())
    if match is None or match[2] not in _SECONDS:
        return _LOCALITY_SECONDS
    return int(match[1]) * _SECONDS[match[2]]


def _query(directory: ControlDir, wait: float) -> Iterator[Check]:
    pending = len(Mailbox(directory).waiting())
    try:
        told = Mailbox(directory).ask("settings", wait)
    except MigrationTimeout:
        waiting = f"; {pending} requests wait for it" if pending else ""
        yield Check(
            "query",
            Verdict.ADVICE,
            f"no answer in {wait:g} s{waiting}",
            "start the query and give it data; if it runs, look at requests.enabled and requests.interval",
        )
        return
    except BinshiftError as error:
        # Other errors say themselves what to do.
        is_unknown = error.condition == "REQUEST_UNREADABLE"
        then = "use the same version of binshift in both places" if is_unknown else ""
        yield Check("query", Verdict.PROBLEM, str(error), then)
        return
    yield Check("query", Verdict.FINE, f"runs on Spark {told['spark']} with binshift {told['binshift']}")
    yield from settings_checks(told, directory.uri.partition(":/")[0] if ":/" in directory.uri else "")


def _without_bins(directory: ControlDir) -> Check:
    if not directory.files.exists("offsets"):
        return Check("checkpoint", Verdict.FINE, "no query has run here yet")
    provider = directory.provider()
    if provider == STOCK_PROVIDER:
        found = "written by Spark's RocksDB provider"
        return Check(
            "checkpoint",
            Verdict.ADVICE,
            found,
            "start its query with binshift.configure(), which takes it over",
        )
    if provider is None:
        return Check(
            "checkpoint", Verdict.ADVICE, "no epoch has been planned", "give the query data, and look again"
        )
    if provider == PROVIDER:
        return Check(
            "checkpoint",
            Verdict.PROBLEM,
            "binshift wrote it, but binshift/layout.json is missing",
            "restore the directory binshift/ from a copy of the checkpoint; without it, no key has an owner",
        )
    return Check(
        "checkpoint",
        Verdict.PROBLEM,
        f"its {PROVIDER_KEY} is {provider}",
        f"stop its query, and rewrite the checkpoint with 'binshift convert {directory.uri} --to binshift'",
    )


def _bins(uri: str, bins: int, partitions: int) -> Iterator[Check]:
    if bins < _FEW_BINS * partitions:
        yield Check(
            "bins",
            Verdict.ADVICE,
            f"{bins / partitions:.1f} bins a partition; {bins} partitions are the most there can be",
            f"a checkpoint keeps its number of bins; to have more, stop the query, run 'binshift convert {uri} "
            "--to rocksdb', and start the query on the output in a session with configure(bins=...)",
        )


def _changelogs(directory: ControlDir, layout: dict[str, Any]) -> Iterator[Check]:
    """True if the newest versions were written as changelogs, which copies need."""
    binned = [o["id"] for o in layout["operators"] if o["storage"] == "binned"]
    if not binned or directory.committed_epoch() < 1:
        return
    store = f"state/{binned[0]}/0"
    folders = [store, *(f"{store}/{name}" for name in directory.files.directories(store))]
    names = [name for folder in folders for name in directory.files.sizes(folder)]
    if any(name.endswith(".changelog") for name in names):
        yield Check("changelogs", Verdict.FINE, "written, so bins are copied before their step")
    elif any(name.endswith(".zip") for name in names):
        yield _without_changelogs("none are written")


def _without_changelogs(found: str) -> Check:
    then = (
        f"start the query with {CHANGELOG_KEY} = true, as configure() does: copies follow a query by changelogs"
    )
    return Check("changelogs", Verdict.ADVICE, found, then)
