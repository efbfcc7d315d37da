"""One driver process with a query in real-time mode, which rescales on the way and reports at the end.

After a crash, the next run's source begins with all rows that were fed, like a source that keeps its data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.session import PROVIDER_KEY, REAL_TIME_KEY
from harness import entries, real_time_session, until

#: Spark's setting to check the operators of a plan against its list.
ALLOWLIST_KEY = "spark.sql.streaming.realTimeMode.allowlistCheck"

ROWS = 24
Line = tuple[str, int]


def fed(epoch: int) -> list[Line]:
    """The rows of one epoch: some of the keys, a few of them several times."""
    return [(f"key{(i * i + 5 * epoch) % 40}", i % 5) for i in range(ROWS)]


class RealTime:
    """A query in real-time mode, and its files in `root`."""

    def __init__(
        self, spark: Any, root: Path, operator: str, checkpoint: str = "", *, is_standing: bool = True
    ) -> None:
        self.spark, self.root, self.operator = spark, root, operator
        self.is_standing = is_standing
        self.checkpoint, self.outputs = Path(checkpoint or root / "checkpoint"), root / "outputs"
        self.outputs.mkdir(parents=True, exist_ok=True)
        number = len(list(root.glob("run-*")))
        (root / f"run-{number}").touch()
        self.look: Any = spark._jvm.org.apache.spark.sql.binshift.RealTimeRun
        self.jvm: Any = self.look(
            spark._jsparkSession, operator, str(self.checkpoint), str(self.outputs), number, is_standing
        )
        self.count = len(list(root.glob("fed-*")))
        for epoch in range(self.count):
            self._add(epoch)
        self.query: Any = None
        #: The last epoch that this driver has ended, or that had ended when it was started.
        self.ended = self.committed

    def start(self) -> RealTime:
        self.query = StreamingQuery(self.jvm.start())
        return self

    def run_batches(self) -> None:
        """Runs the same query in micro-batches until it has processed all rows."""
        self.query = StreamingQuery(self.jvm.startBatches())
        self.query.processAllAvailable()
        self.query.stop()

    def _add(self, epoch: int) -> None:
        self.jvm.add("\n".join(f"{k} {v}" for k, v in fed(epoch)))

    def feed(self) -> None:
        """Feeds rows, and waits until the open batch has output them."""
        self.feed_unread()
        self.await_outputs()

    def feed_unread(self) -> None:
        """Feeds rows while no batch runs."""
        (self.root / f"fed-{self.count}").touch()
        self._add(self.count)
        self.count += 1

    def await_outputs(self) -> None:
        """Waits for the last output of each key that was fed."""
        rows = [row for epoch in range(self.count) for row in fed(epoch)]
        if self.operator == "distinct-count":
            rows = list(dict.fromkeys(rows))
        totals = {k: (Counter(r[0] for r in rows)[k], sum(v for q, v in rows if q == k)) for k, _ in rows}
        last = {k if self.operator == "distinct" else f"{k} {n} {total}" for k, (n, total) in totals.items()}
        self.until(lambda: last <= set(self.lines()), "outputs")

    def lines(self) -> list[str]:
        """All output rows; for each epoch, those of the last run that ran it."""
        files: dict[int, dict[int, list[Path]]] = {}
        for f in self.outputs.iterdir():
            epoch, run, _ = map(int, f.name.split("."))
            files.setdefault(epoch, {}).setdefault(run, []).append(f)
        last = [f for runs in files.values() for f in runs[max(runs)]]
        return [line for f in last for line in f.read_text().splitlines()]

    @property
    def committed(self) -> int:
        return max((int(f.name) for f in (self.checkpoint / "commits").glob("[0-9]*")), default=-1)

    def end(self) -> None:
        """Ends the open batch once it has begun, and waits until it is committed."""
        open_epoch = self.committed + 1
        if self.is_standing:
            # If another driver has gone on meanwhile, it has ended the batch that is open here.
            here = range(self.ended + 1, open_epoch + 1)
            self.until(lambda: any(map(self._is_running, here)), f"tasks of epoch {open_epoch}")
            self.jvm.endBatch()
        self.until(lambda: self.committed >= open_epoch, f"the end of epoch {open_epoch}")
        self.ended = open_epoch

    def await_begun(self, epoch: int) -> None:
        # A batch that ends by the clock may be over before Spark's listeners report its start.
        if self.is_standing:
            self.until(lambda: self._is_running(epoch), f"tasks of epoch {epoch}")

    def _is_running(self, epoch: int) -> bool:
        return bool(self.look.isRunning(self.query._jsq, epoch))

    def epoch(self) -> None:
        self.feed()
        self.end()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def happened() -> bool:
            assert self.query.isActive, self.failure()
            return condition()

        assert until(happened, 120), f"waited in vain for {what}"

    def failure(self) -> str:
        """The exception with which the query has ended, and its causes."""
        return str(self.look.failure(self.query._jsq))

    def report(self) -> dict[str, Any]:
        """The outputs, the state, and the entries of the logs; ends the query."""
        retained = [f.name for f in (self.checkpoint / "offsets").glob("[0-9]*")]
        progress = [op for p in self.query.recentProgress for op in p.stateOperators]
        report = {
            "lines": sorted(self.lines()),
            "fed": [fed(e) for e in range(self.count)],
            "partitions": self.attach().routing().partitions,
            "history": self.attach().history().column("bins_moved").to_pylist(),
            "paths": {
                name: sum(op.customMetrics.get(f"binshiftBins{name}", 0) for op in progress)
                for name in ("Prepared", "Shipped", "FromCheckpoint")
            },
            "provider": self.look.setting(self.query._jsq, PROVIDER_KEY),
            "plan": self.look.plan(self.query._jsq),
            "offsets": [n for e in sorted(map(int, retained)) if (n := self._logged(e)) is not None],
        }
        report["state"] = self.state("total" if self.operator.startswith("transform") else None)
        metadata = self.spark.read.format("state-metadata").load(str(self.checkpoint)).collect()
        report["metadata"] = [m.numPartitions for m in metadata]
        return report

    def state(self, variable: str | None = None) -> list[list[Any]]:
        """The committed state, or that of a variable of `transformWithState`; ends the query."""
        self.query.stop()
        # In real-time mode, Spark sets this for the query only.
        self.spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
        options = {"stateVarName": variable} if variable else {}
        state = self.spark.read.format("statestore").options(**options).load(str(self.checkpoint))
        return sorted([*key, *value] for key, value in state.select("key", "value").collect())

    def _logged(self, epoch: int) -> str | None:
        """The number of partitions that Spark logged with an epoch, unless the entry is deleted by now."""
        try:
            lines = (self.checkpoint / f"offsets/{epoch}").read_text().splitlines()
        except FileNotFoundError:
            return None
        return str(json.loads(lines[1])["conf"]["spark.sql.shuffle.partitions"])

    def attach(self) -> binshift.Controller:
        self.until((self.checkpoint / "binshift/layout.json").exists, "the first plan")
        return binshift.attach(self.query)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--operator", default="count")
    parser.add_argument(
        "--rescale", type=int, nargs="*", default=[4], help="numbers of partitions, 0 to shuffle"
    )
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("--on-demand", action="store_true")
    parser.add_argument("--take-over", action="store_true", help="begin with Spark's provider")
    parser.add_argument("--batches", action="store_true", help="run in micro-batches on the way")
    parser.add_argument("--master", default="local[8,1]")
    parser.add_argument(
        "--occupy", action="store_true", help="have other jobs take the slots that a step needs"
    )
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    spark = real_time_session(args.master, **dict(c.split("=", 1) for c in args.conf))
    if args.operator == "transform":
        # Spark's own check does not know binshift's operator.
        spark.conf.set(ALLOWLIST_KEY, "false")
    is_standing = args.master.startswith("local[")

    def another() -> RealTime:
        return RealTime(spark, args.root, args.operator, is_standing=is_standing)

    if args.take_over and not (args.root / "checkpoint/binshift").exists():
        spark.conf.unset(REAL_TIME_KEY)
        stock = another().start()
        for _ in range(2):
            stock.epoch()
        stock.query.stop()
        spark.conf.set(REAL_TIME_KEY, "true")
    run = another().start()
    run.await_outputs()
    while run.committed < 0 or run.count < 2:
        run.epoch()
    for n in args.rescale:
        run.feed()
        rescale_once(run, n, args)
        if args.occupy and n:
            occupied(run, n)
        while run.attach().migration() is not None:
            run.epoch()
        if args.batches:
            run.query.stop()
            run.run_batches()
            run = another()
            run.feed_unread()
            run.run_batches()
            run = another().start()
            run.await_outputs()
    run.epoch()
    (args.root / "report.json").write_text(json.dumps(run.report()))
    spark.stop()


def rescale_once(run: RealTime, n: int, args: argparse.Namespace) -> None:
    marker = run.root / f"submitted-{n}"
    controller = run.attach()
    if marker.exists() or controller.migration() is not None:
        return
    strategy = binshift.AllAtOnce() if args.at_once else binshift.OnDemand() if args.on_demand else None
    now = controller.routing()
    target = n or [(b // 3) % now.partitions for b in range(now.bins)]
    controller.rescale(target, strategy=strategy, prepare=args.prepare)
    marker.touch()


def occupied(run: RealTime, n: int) -> None:
    """A step that does not fit is not carried out, neither when it is due nor after its table is durable."""
    before = run.attach().routing().partitions
    run.jvm.occupy(8 - n, 8 - n)
    for _ in range(2):
        run.epoch()
    # Otherwise the epoch that is planned now would find free slots and prepare the step.
    run.await_begun(run.committed + 1)
    assert run.attach().routing().partitions == before
    run.jvm.free()
    run.epoch()
    # The epoch that is planned now has prepared the next step, which no longer fits when it is to begin.
    due = run.committed + 2
    run.until(lambda: due in entries(run.checkpoint), f"the table of epoch {due}")
    run.jvm.occupy(8 - n, 8 - n)
    run.epoch()
    run.until(lambda: due not in entries(run.checkpoint), "the table to be taken back")
    run.epoch()
    assert run.attach().routing().partitions == before
    run.jvm.free()


if __name__ == "__main__":
    main()
