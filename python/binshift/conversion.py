"""Converting the checkpoint of a stopped query: from Spark's providers to binshift's, and back."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

from pyspark.sql import SparkSession

from binshift.arguments import checked
from binshift.control.uris import shown
from binshift.display import brief
from binshift.errors import ConfigurationError, impossible
from binshift.jvm import call, gateway_of
from binshift.numbers import is_whole
from binshift.session import any_session, configure

__all__ = ["ConversionReport", "convert"]

_POLL_SECONDS = 0.2
_log = logging.getLogger("binshift")


@dataclass(frozen=True, slots=True, repr=False)
class ConversionReport:
    """The result of a conversion, or of a dry run.

    Parameters
    ----------
    checkpoint, output : str
        The checkpoint that was read, and the one that was written.
    to : str
        The provider that continues: `"rocksdb"` or `"binshift"`.
    provider : str
        Class name of the provider that wrote the checkpoint.
    epoch : int
        The last committed epoch, whose state is converted.
    uncommitted_epochs : int
        Epochs that were begun but not committed. The query runs them again when it starts from the output.
    partitions_before, partitions : int
        State partitions of the checkpoint and of the output.
    stores : tuple of str
        The state stores, by operator.
    needed : bool
        Whether anything has to be converted. If not, the query can continue with the checkpoint as it is.
    converted : bool
        Whether the output was written.
    duration_s : float
        How many seconds the conversion took.
    """

    checkpoint: str
    _: KW_ONLY
    output: str
    to: str
    provider: str
    epoch: int
    uncommitted_epochs: int
    partitions_before: int
    partitions: int
    stores: tuple[str, ...]
    needed: bool
    converted: bool = False
    duration_s: float = 0.0

    def __str__(self) -> str:
        what = f"{shown(self.checkpoint)} ({self.provider.rpartition('.')[2]}, epoch {self.epoch})"
        if not self.needed:
            return f"{what} needs no conversion: start the query on it in a session of binshift"
        did = f"converted in {self.duration_s:.1f} s" if self.converted else "would be converted"
        return (
            f"{what}\n  {did} to {shown(self.output)}:\n"
            f"  {self.partitions_before} -> {self.partitions} partitions of {', '.join(self.stores)}"
        )

    def __repr__(self) -> str:
        return brief(self, str(self))


@checked(ConfigurationError, but=("partitions",))
def convert(
    checkpoint: str | os.PathLike[str],
    *,
    to: str,
    output: str | os.PathLike[str] | None = None,
    partitions: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    progress: bool = False,
    spark: SparkSession | None = None,
    conf: Mapping[str, str] | None = None,
) -> ConversionReport:
    """Converts the checkpoint of a stopped query for another provider, into another directory.

    The original is only read. The output is complete when its file `metadata` exists, which is written
    last; Spark starts no query from an incomplete one. If a conversion is interrupted, simply run it again.
    Afterwards, start the query with the output as its `checkpointLocation`.

    Parameters
    ----------
    checkpoint : str or path
        The query's checkpoint directory, at a path or URL that Spark can read.
    to : {"rocksdb", "binshift"}
        `"rocksdb"` gives a checkpoint of Spark's own RocksDB provider. `"binshift"` gives one with which a
        session of binshift can continue. That is only needed for checkpoints of Spark's HDFS-backed provider,
        because a session of binshift continues from any checkpoint of the RocksDB provider as it is.
    output : str or path, optional
        The directory to write, which must not exist. The default is the checkpoint's with `-rocksdb` or
        `-binshift` added.
    partitions : int, optional
        Number of state partitions of the output; by default as many as there are.
    dry_run : bool
        Check and report, but change nothing.
    force : bool
        Convert even if the query is running, with what it has committed so far. Two queries then continue from
        the same state, unless you stop the first one for good.
    progress : bool
        Show a progress bar on stderr, if that is a terminal.
    spark : SparkSession, optional
        The session whose executors do the work. The default is the active session, or that of another thread,
        or else a new one on all cores of this machine, which ends with the conversion.
    conf : mapping of str to str, optional
        Settings of the session that is started for the conversion, such as `spark.jars.packages` for the
        classes of an object store.

    Returns
    -------
    ConversionReport
        What was, or would be, done.

    Raises
    ------
    ConfigurationError
        If there is no such checkpoint, its provider is unknown, or the output exists. Also if its query runs in
        the same application, or commits epochs during the conversion. Also if another conversion began to
        write the output, or if binshift could not continue with it.
    UnsupportedOperatorError
        If `partitions` differs from the present number, and an operator's state can't change its partition.
        Also if there is only one partition, because that doesn't show whether it can.
    BinshiftError
        If the work itself fails, for example because the disk is full; the checkpoint is unchanged.
    """
    checkpoint = os.fspath(checkpoint)
    output = f"{checkpoint.rstrip('/')}-{to}" if output is None else os.fspath(output)
    if partitions is not None and not is_whole(partitions, 1):
        raise impossible(ConfigurationError, "partitions", partitions, "a whole number of at least 1")
    with _session(spark, conf or {}) as session:
        conversion = call(
            gateway_of(session).conversion,
            session._jsparkSession,
            checkpoint,
            output,
            to,
            partitions or 0,
            force,
        )
        plan = json.loads(call(conversion.plan))
        stores = plan.pop("stores")
        names = tuple(f"{s['operator_id']} {s['operator']} {s['store']}" for s in stores)
        report = ConversionReport(stores=names, **plan)
        if dry_run or not report.needed:
            return report
        started = time.monotonic()
        _run(conversion, is_shown=progress)
        seconds = time.monotonic() - started
        _log.info("%s was converted to %s in %.1f s", shown(checkpoint), shown(output), seconds)
        return ConversionReport(stores=names, **plan, converted=True, duration_s=seconds)


@contextmanager
def _session(spark: SparkSession | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    active = spark or any_session()
    if active is not None and conf:
        raise ConfigurationError(
            f"conf has {', '.join(conf)} for a session that is started, and one is there already; "
            "give that one the settings, or stop it first",
            condition="INVALID_VALUE",
            name="conf",
            value=tuple(conf),
        )
    if active is not None:
        yield active
        return
    own = configure(SparkSession.builder.master("local[*]").appName("binshift convert"))
    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **conf}
    session = own.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _run(conversion: Any, *, is_shown: bool) -> None:
    # Imported here, so that the package can be imported without tqdm.
    from tqdm import tqdm  # noqa: PLC0415

    with ThreadPoolExecutor(1) as pool:
        try:
            future: Future[Any] = pool.submit(call, conversion.run)
            total = json.loads(conversion.progress())["total"]
            hidden = not (is_shown and sys.stderr.isatty())
            with tqdm(total=total, unit=" partitions", file=sys.stderr, disable=hidden) as bar:
                while not future.done():
                    wait([future], timeout=_POLL_SECONDS)
                    bar.update(json.loads(conversion.progress())["done"] - bar.n)
        except BaseException:
            conversion.cancel()
            raise
        future.result()
