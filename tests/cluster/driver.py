"""One driver process: counts rows by key over `--epochs` files, rescales on the way, reports at the end.

Run again after it died, it feeds only what it has not fed, as a source that keeps its data would, and
submits a rescale only if the one it wanted was never accepted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import binshift
from harness import Fault, StreamRun, session, until


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--master", default="local[2,3]")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rescale", action="append", default=[], metavar="EPOCH:PARTITIONS:BINS_PER_STEP")
    parser.add_argument("--fault", choices=["fail-task", "kill-executor"])
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--on-demand", action="store_true")
    parser.add_argument("--shipping-fault", metavar="POINT.ACTION")
    parser.add_argument("--operator", choices=["aggregate", "transform"], default="aggregate")
    parser.add_argument("--count-messages", action="store_true", help="that the driver gets of shipments")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    conf = dict(c.split("=", 1) for c in args.conf)
    # The bins that a dead executor should have sent do not come.
    conf.setdefault("spark.sql.streaming.stateStore.binshift.ship.timeout", "3s")
    spark = session(args.master, **conf)
    await_executors(spark)
    if args.count_messages:
        blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
        blocks.beginToCountMessages(spark.sparkContext._jsc.sc())
    run = StreamRun(spark, args.root, counter(args.root, args.fault, args.operator))
    run.outputs = Outputs(args.root / "outputs")
    run.start()
    run.query.processAllAvailable()
    wanted = {int(e): (int(n), int(k)) for e, n, k in (r.split(":") for r in args.rescale)}
    partitions_seen = []
    for epoch in range(args.epochs):
        if epoch >= len(list(run.input.glob("*.json"))):
            run.run(epoch)
        if epoch in wanted:
            submit_once(run, args, epoch, *wanted[epoch])
            arm(run, args.root, args.fault)
        partitions_seen.append(run.attach().routing().partitions)
    while (migration := run.attach().migration()) is not None:
        run.feed([])
        run.query.processAllAvailable()
        migration.status  # noqa: B018 - notices that it is over
    variable = {"stateVarName": "counts"} if args.operator == "transform" else {}
    epochs = [p for p in run.query.recentProgress if "addBatch" in p.durationMs]
    metrics = [op.customMetrics for p in epochs for op in p.stateOperators]
    stats = run.attach().stats()
    by_bin = Counter(
        r.bin for r in run.batch().select(F.pmod(F.hash("k"), F.lit(64)).alias("bin"), "k").distinct().collect()
    )
    report = {
        "keys": sum(stats["keys"].to_pylist()),
        "inexact_bins": sum(keys != by_bin[b] for b, keys in enumerate(stats["keys"].to_pylist())),
        "executors": sorted(set(stats["executor"].to_pylist())),
        "paths": {
            name: sum(m.get(f"binshiftBins{name}", 0) for m in metrics)
            for name in ("Prepared", "Shipped", "FromCheckpoint", "Recopied")
        },
        "rows_fetched": sum(m.get("binshiftRowsFetched", 0) for m in metrics),
        "state": [[*key, *value] for key, value in run.state(**variable)],
        "partitions": run.attach().routing().partitions,
        "partitions_seen": partitions_seen,
        "history": [r["bins_moved"] for r in run.attach().history().to_pylist()],
        "numRowsTotal": run.query.lastProgress.stateOperators[0].numRowsTotal,
        "metadata": [m.numPartitions for m in run.metadata()],
    }
    if args.count_messages:
        report["messages"] = blocks.countedMessages(spark.sparkContext._jsc.sc())
    (args.root / "report.json").write_text(json.dumps(report))
    run.stop()
    spark.stop()


class Outputs(dict[int, Any]):
    """A sink that survives the process: the newest output of each epoch, one file each."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def __setitem__(self, epoch: int, output: Any) -> None:
        temporary = self.folder / "next"
        temporary.write_text(json.dumps(output, default=str))
        os.replace(temporary, self.folder / f"{epoch}.json")


def await_executors(spark: SparkSession) -> None:
    """Partitions are placed on the executors that are there."""
    wanted = re.match(r"local-cluster\[(\d+)", spark.sparkContext.master)
    status = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
    assert wanted is None or until(lambda: status().size() == int(wanted[1]) + 1)


def submit_once(
    run: StreamRun, args: argparse.Namespace, epoch: int, partitions: int, bins_per_step: int
) -> None:
    controller = run.attach()
    marker = args.root / f"submitted-{epoch}"
    if marker.exists() or controller.migration() is not None or controller.history().num_rows > 0:
        return
    if args.shipping_fault is not None:
        Fault(*args.shipping_fault.rsplit(".", 1)).file.touch()
    if args.on_demand:
        # Each partition gets bins, whichever of its tasks the fault hits.
        everywhere = [(b + 1) % partitions for b in range(controller.routing().bins)]
        controller.submit(controller.plan(everywhere, strategy=binshift.OnDemand()))
    else:
        controller.rescale(partitions, strategy=binshift.Batched(bins_per_step), prepare=args.prepare)
    marker.touch()


def arm(run: StreamRun, root: Path, fault: str | None) -> None:
    """Feeds the epoch that prepares the switch, then lays the fault in wait for the switch itself."""
    if fault is not None and not (root / "fault.done").exists():
        run.run(len(list(run.input.glob("*.json"))))
        (root / "fault").touch()


class Counting(StatefulProcessor):
    """Does by hand what the aggregation does."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.counts = handle.getValueState("counts", "n long, total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        n, total = self.counts.get() if self.counts.exists() else (0, 0)
        for row in rows:
            n, total = n + 1, total + row.v
        self.counts.update((n, total))
        yield Row(k=key[0], n=n, total=total)

    def close(self) -> None:
        pass


def counter(root: Path, fault: str | None, operator: str) -> Any:
    def build(df: DataFrame) -> DataFrame:
        groups = df.groupBy("k")
        if operator == "transform":
            counts = groups.transformWithState(Counting(), "k string, n long, total long", "Update", "None")
        else:
            counts = groups.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        if fault is None:
            return counts
        trip = F.udf(make_trap(str(root), fault), "long")
        return counts.select("k", trip("n").alias("n"), "total")

    return build


def make_trap(root: str, fault: str) -> Any:
    def trap(n: int) -> int:
        try:
            os.rename(f"{root}/fault", f"{root}/fault.done")
        except FileNotFoundError:
            return n
        if fault == "fail-task":
            raise RuntimeError("this attempt fails on purpose")
        # The Python worker is a child of a daemon, which is a child of the executor's JVM.
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(daemon.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        return n

    return trap


if __name__ == "__main__":
    main()
