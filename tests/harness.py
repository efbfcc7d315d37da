"""Runs a streaming query over files that the test writes, epoch by epoch, and keeps its outputs."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

import binshift
from binshift.session import CHANGELOG_KEY, PROVIDER, PROVIDER_KEY, STOCK_PROVIDER
from jvms import quick

STOCK = STOCK_PROVIDER
SCHEMA = "k string, v long, t timestamp"
Row = tuple[Any, ...]


def session(master: str, **conf: str) -> SparkSession:
    """A session with binshift, little logging, and two state partitions to begin with."""
    return _session(master, conf, real_time=False)


def real_time_session(master: str, **conf: str) -> SparkSession:
    """A session like `session`, for queries in real-time mode."""
    return _session(master, conf, real_time=True)


def _session(master: str, conf: dict[str, str], *, real_time: bool) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("binshift-tests")
    scratch = os.environ["BINSHIFT_TESTS_TMP"]
    options = {
        **quick(),
        # All clusters of a test run keep their executors' directories side by side, so names have to be unique.
        "spark.deploy.appIdPattern": f"app-{os.getpid()}-%s-%04d",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
        # Closing all stores waits for Spark's maintenance, holding a lock that the maintenance may need.
        "spark.sql.streaming.stateStore.maintenanceShutdownTimeout": "30s",
        # So short that the tests' commands wait no longer than they would for an epoch.
        "spark.sql.streaming.stateStore.binshift.requests.interval": "100ms",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.python.authenticate.socketTimeout": "2m",
        "spark.binshift.tests.faults": f"{scratch}/faults",
        **traced(),
        **conf,
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = binshift.configure(builder, bins=64, real_time=real_time).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def traced() -> dict[str, str]:
    """The settings that make a session's processes write down what they do, if the environment says where."""
    folder = os.environ.get("BINSHIFT_TESTS_TRACE")
    return {"spark.sql.streaming.stateStore.binshift.trace": folder} if folder else {}


def rows(epoch: int, n: int = 40, keys: int = 60) -> list[dict[str, Any]]:
    """The input of one epoch: a moving window of keys and growing event times; every eighth row is late."""
    out = []
    for i in range(n):
        minute = max(0, epoch - 4) if i % 8 == 3 else epoch
        t = datetime(2026, 1, 1) + timedelta(minutes=minute, seconds=i % 60)
        out.append({"k": f"key{(i * 7 + epoch * 11) % keys}", "v": i, "t": str(t)})
    return out


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Polls `condition`, for Spark's work in the background; returns True if it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def end_maintenance(spark: SparkSession) -> None:
    """Closes all stores, as Spark may still upload snapshots of a query that has ended."""
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def entries(checkpoint: Path) -> dict[int, Path]:
    """The files of all routing entries in the order of their epochs, also of those never in force."""
    files = (f for f in (checkpoint / "binshift/routing").iterdir() if f.name[0].isdigit())
    return {int(f.name.split("-")[0]): f for f in sorted(files, key=lambda f: int(f.name.split("-")[0]))}


def plans(checkpoint: Path) -> list[Path]:
    """The files of the migrations that are under way."""
    return sorted((checkpoint / "binshift/plans").glob("*.json"))


def lose(file: Path) -> None:
    """Deletes a file and its checksum file."""
    file.unlink()
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


class Fault:
    """A fault at a point of shipping, once or `always`; see tests/jvm/TestFaults.scala."""

    def __init__(self, point: str, action: str, always: bool = False) -> None:
        folder = Path(os.environ["BINSHIFT_TESTS_TMP"]) / "faults"
        folder.mkdir(exist_ok=True)
        self.file = folder / (f"{point}.{action}" + ".always" * always)

    def __enter__(self) -> Fault:
        self.file.touch()
        return self

    @property
    def happened(self) -> bool:
        return not self.file.exists()

    @property
    def count(self) -> int:
        """How often the point was passed; for faults that only count."""
        return self.file.stat().st_size

    def __exit__(self, *error: object) -> None:
        self.file.unlink(missing_ok=True)


@contextmanager
def held_up_at(point: str, start: Callable[[], object]) -> Iterator[None]:
    """Calls `start`, waits until a thread has reached the point, and holds it there."""
    with Fault(point, "count") as passed, Fault(point, "block"):
        start()
        assert until(lambda: passed.count > 0)
        yield


class StreamRun:
    """A query with its own input directory and checkpoint.

    Parameters
    ----------
    build : callable
        From the input (columns k, v, t) to the query's DataFrame.
    provider : str
        Class name of the state-store provider.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        build: Callable[[DataFrame], DataFrame],
        mode: str = "update",
        provider: str = PROVIDER,
        conf: dict[str, str] | None = None,
    ) -> None:
        self.spark = spark.newSession()
        self.root = root
        self.input = root / "input"
        self.checkpoint = root / "checkpoint"
        self.input.mkdir(parents=True, exist_ok=True)
        self.build = build
        self.mode = mode
        self.outputs: dict[int, list[Row]] = {}
        self.query: Any = None
        self.conf = {PROVIDER_KEY: provider, CHANGELOG_KEY: "true", **(conf or {})}
        for key, value in self.conf.items():
            self.spark.conf.set(key, value)

    @property
    def source(self) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.input))

    def start(self, name: str | None = None, **trigger: Any) -> StreamRun:
        writer = self.build(self.source).writeStream.outputMode(self.mode).foreachBatch(self._keep)
        if name is not None:
            writer = writer.queryName(name)
        writer = writer.trigger(**trigger) if trigger else writer
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        return self

    def _keep(self, batch: DataFrame, epoch: int) -> None:
        # A batch that is run again replaces its output, as an exactly-once sink does.
        self.outputs[epoch] = sorted((tuple(r) for r in batch.collect()), key=repr)

    def feed(self, data: Iterable[dict[str, Any]]) -> None:
        """Writes an input file, and doesn't wait for its epoch."""
        number = len(list(self.input.glob("*.json")))
        temporary = self.root / "next"
        temporary.write_text("\n".join(json.dumps(r) for r in data))
        os.replace(temporary, self.input / f"{number:06}.json")

    def run(self, *epochs: int, **kwargs: int) -> None:
        """Feeds each epoch's rows, and waits until they are processed."""
        for epoch in epochs:
            self.feed(rows(epoch, **kwargs))
            self.query.processAllAvailable()

    def forget(self, *epochs: int, logs: Iterable[str] = ("commits",)) -> None:
        """Deletes epochs from a log, by default that of commits, as if the driver had died before."""
        for log in logs:
            for epoch in epochs:
                for name in (str(epoch), f".{epoch}.crc"):
                    (self.checkpoint / log / name).unlink()

    def attach(self) -> binshift.Controller:
        return binshift.attach(self.query)

    def state(self, **options: Any) -> list[Row]:
        """The state that the `statestore` source reads from the checkpoint."""
        reader = self.spark.read.format("statestore").options(**options)
        table = reader.load(str(self.readable())).select("key", "value")
        return sorted(((tuple(r.key), tuple(r.value)) for r in table.collect()), key=repr)

    def states(self, options: Iterable[dict[str, str]], checkpoint: Path | None = None) -> list[list[str]]:
        """The states for several sets of options, each as sorted text, since their rows differ in form."""
        path = str(checkpoint or self.readable())

        def read(o: dict[str, str]) -> DataFrame:
            return self.spark.read.format("statestore").options(**o).load(path)

        return [sorted(repr(r) for r in read(o).drop("partition_id").collect()) for o in options]

    def readable(self, epoch: int | None = None, *, stock: bool = False) -> Path:
        """A checkpoint from which the `statestore` source can read an epoch, by default the last one.

        That is the checkpoint. Spark 4.1 fails at directories of other partitions, under format 2 and of
        state in the `stock` form, and gets a copy without them. It can be read once no recovery needs them.
        """
        ids = self.spark.conf.get("spark.sql.streaming.stateStore.checkpointFormatVersion", "1") == "2"
        if not ((ids or stock) and pyspark.__version__.startswith("4.1.")):
            return self.checkpoint
        if epoch is None:
            epoch = max(int(f.name) for f in (self.checkpoint / "commits").iterdir() if f.name.isdigit())
        logged = (self.checkpoint / "offsets" / str(epoch)).read_text().splitlines()[1]
        partitions = int(json.loads(logged)["conf"]["spark.sql.shuffle.partitions"])

        def retired(folder: str, names: list[str]) -> list[str]:
            of_an_operator = Path(folder).parent == self.checkpoint / "state"
            return [n for n in names if of_an_operator and n.isdigit() and int(n) >= partitions]

        copy = self.root / "readable"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.checkpoint, copy, ignore=retired)
        return copy

    def metadata(self) -> list[Any]:
        return self.spark.read.format("state-metadata").load(str(self.checkpoint)).collect()

    def progress(self, epoch: int) -> Any:
        """The report of an epoch, and not a report of the idle query, which has the same number."""
        # Only the epoch's report is converted, since each takes some hundred calls to the JVM.
        reports = [p for p in self.query._jsq.recentProgress() if p.batchId() == epoch]
        return next(p for p in map(StreamingQueryProgress.fromJObject, reports) if "addBatch" in p.durationMs)

    def batch(self) -> DataFrame:
        """All input so far, as a batch: the oracle that shares no code with the query's state."""
        return self.spark.read.schema(SCHEMA).json(str(self.input))

    def stop(self) -> None:
        """Stops the query, and waits until listeners have handled its end and statistics are saved."""
        if self.query is not None:
            self.query.stop()
            self.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(120_000)


def assert_same_results(
    run: StreamRun, oracle: StreamRun, state: Iterable[dict[str, str]] = ({},), rows: bool = True
) -> None:
    """Output of every epoch, and final state and its size, equal those of a query that never migrated."""
    assert run.outputs == oracle.outputs
    for mine, expected in zip(run.states(state), oracle.states(state), strict=True):
        assert mine == expected
    if rows:
        mine, expected = (
            [op.numRowsTotal for op in r.query.lastProgress.stateOperators] for r in (run, oracle)
        )
        assert mine == expected
