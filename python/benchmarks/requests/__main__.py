"""Counts the requests of a query to its checkpoint, and times them as an object store would.

Runs Spark's own provider and binshift in turn over jvm/CountedFiles.scala, and prints a table for
BENCHMARKS.md. Needs `python/benchmarks` on PYTHONPATH; `make bench-requests` does that.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import binshift
from binshift.session import PROVIDER, STOCK_PROVIDER
from devtools.counted import CountedQuery, Request, by_caller
from killedquery import PARTITIONS, SPAN, conf, snapshots
from openloop.session import session

EPOCHS = 10
THREADS = ("stream", "task", "maintenance", "background", "other")
Report = Callable[[str, float, int, list[Request]], None]
Make = Callable[[str], CountedQuery]


def steady(query: CountedQuery, wait: Callable[[], object] = lambda: None) -> tuple[float, list[Request]]:
    """Seconds and requests of some whole epochs, while `wait` is called now and then."""
    first = query.epoch + 2
    query.reach(first - 1)
    begun = time.monotonic()
    while query.epoch < first + EPOCHS - 1:
        wait()
        time.sleep(0.1)
    seconds = time.monotonic() - begun
    return seconds, [r for r in query.counted() if first <= r.epoch < first + EPOCHS]


def restart(query: CountedQuery, committed: int) -> tuple[float, list[Request]]:
    """Seconds from the start to the first commit, and the requests until then."""
    query.count(*DELAY)
    begun = time.monotonic()
    query.start()
    query.reach(committed + 1)
    seconds = time.monotonic() - begun
    return seconds, [r for r in query.counted() if r.epoch <= committed + 1]


DELAY = (60, 50 << 20)


def idle(make: Make, report: Report, provider: str, name: str) -> None:
    query = make(provider)
    query.count(*DELAY)
    query.start()
    query.reach(3)
    seconds, requests = steady(query)
    report(f"{name}, steady", seconds, EPOCHS, requests)
    query.stop()
    seconds, requests = restart(query, query.epoch)
    report(f"{name}, restart", seconds, 1, requests)
    query.stop()


def watched(make: Make, report: Report) -> None:
    """Somebody asks for the status of a migration that waits for its first epoch."""
    query = make(PROVIDER)
    query.count(*DELAY)
    controller = binshift.attach(query.start())
    query.reach(3)
    plan = controller.plan(query_partitions(query) + 1)
    migration = controller.submit(plan, start_epoch=10_000)
    seconds, requests = steady(query, lambda: migration.status)
    report("binshift, steady, somebody waits", seconds, EPOCHS, requests)
    migration.cancel()
    query.stop()


def query_partitions(query: CountedQuery) -> int:
    return int(query.spark.conf.get("spark.sql.shuffle.partitions") or 0)


def prepared(make: Make, report: Report) -> None:
    query = make(PROVIDER)
    query.count(*DELAY)
    controller = binshift.attach(query.start())
    query.reach(3)
    before = query.epoch
    begun = time.monotonic()
    migration = controller.rescale(query_partitions(query) + 3)
    migration.wait(timeout=600)
    after = query.epoch
    requests = [r for r in query.counted() if before < r.epoch <= after]
    report("binshift, prepared 2 to 5", time.monotonic() - begun, after - before, requests)
    query.stop()


KINDS = ("changelogs", "snapshots", "routing", "other")


def kind(request: Request) -> str:
    """The purpose of a request, as far as it matters for a recovery."""
    name = request.path.rsplit("/", 1)[-1]
    if "/routing" in request.path:
        return "routing"
    if "/state/" in request.path and request.kind == "GET":
        return "changelogs" if ".changelog" in name else "snapshots"
    return "other"


def recovery(spark: SparkSession, root: Path, steps: int, details: bool) -> None:
    """A restart after the driver was killed, with no snapshot from after the first step (killedquery.py)."""
    history = Path(__file__).resolve().parents[1] / "killedquery.py"
    subprocess.run([sys.executable, str(history), str(root), str(steps)], check=True)
    query = CountedQuery(spark, root, PROVIDER, PARTITIONS, conf=conf())
    committed = query.epoch
    seconds, requests = restart(query, committed)
    since = [committed + 1 - version for version in snapshots(root)]
    query.stop()
    kinds = Counter(map(kind, requests))
    megabytes = sum(r.bytes for r in requests if r.kind == "GET") / 1e6
    cells = [steps, max(since), f"{seconds:.1f}", len(requests), *(kinds[k] for k in KINDS), f"{megabytes:.2f}"]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    if details:
        print_callers(requests)


def print_callers(requests: Iterable[Request]) -> None:
    for who, n in by_caller(requests):
        print(f"    {n:4} {who}", flush=True)


@contextmanager
def reporting(details: bool) -> Iterator[Report]:
    print("| what | epochs | s | requests | " + " | ".join(THREADS) + " | binshift's on the stream's thread |")
    print("|---|" + "---|" * (len(THREADS) + 4))

    def report(name: str, seconds: float, epochs: int, requests: list[Request]) -> None:
        threads = Counter(r.thread for r in requests)
        ours = sum(r.ours for r in requests if r.thread == "stream")
        cells: Iterable[object] = [
            name,
            epochs,
            f"{seconds:.1f}",
            len(requests),
            *(threads[t] for t in THREADS),
            ours,
        ]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        if details:
            print_callers(r for r in requests if r.ours)

    yield report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--steps", type=int, nargs="*", default=[0, 1, 4, 40])
    parser.add_argument("--only-recovery", action="store_true", help="leave the first table out")
    parser.add_argument("--details", action="store_true", help="print who asked for what")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(Path(scratch), memory="2g", **{"spark.sql.streaming.minBatchesToRetain": "100"})
        runs = iter(range(1000))

        def make(provider: str) -> CountedQuery:
            return CountedQuery(spark, Path(scratch) / f"run{next(runs)}", provider, args.partitions)

        if not args.only_recovery:
            with reporting(args.details) as report:
                for provider, name in ((STOCK_PROVIDER, "stock"), (PROVIDER, "binshift")):
                    idle(make, report, provider, name)
                watched(make, report)
                prepared(make, report)
        head = ["epochs since snapshots", "s", "requests", *KINDS, "MB read"]
        print(f"\n| steps in {SPAN} epochs | {' | '.join(head)} |")
        print("|---|" + "---|" * (len(head) + 1))
        for steps in args.steps:
            recovery(spark, Path(scratch) / f"recovery{steps}", steps, args.details)
        spark.stop()


if __name__ == "__main__":
    main()
