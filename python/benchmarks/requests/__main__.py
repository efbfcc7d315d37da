"""Counts the requests of a query to its checkpoint, and times them as an object store would.

Runs Spark's own provider and binshift in turn over jvm/CountedFiles.scala, and prints a table for
BENCHMARKS.md. Needs `python/benchmarks` on PYTHONPATH; `make bench-requests` does that.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import binshift
from binshift.session import PROVIDER, STOCK_PROVIDER
from devtools.counted import CountedQuery, Request, by_caller
from openloop.session import session

EPOCHS = 10
THREADS = ("stream", "task", "maintenance", "background", "other")
Report = Callable[[str, float, int, list[Request]], None]
Make = Callable[..., CountedQuery]


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


def recovery(make: Make, report: Report, steps: int) -> None:
    """A restart from changelogs alone: no snapshot was uploaded since the first step."""
    never = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "100000"}
    query = make(PROVIDER, never)
    query.count()
    controller = binshift.attach(query.start())
    query.reach(1)
    for step in range(steps):
        table = list(controller.routing().assignment)
        table[step] = (table[step] + 1) % query_partitions(query)
        controller.submit(controller.plan(table), prepare=False).wait(timeout=120)
    query.reach(query.epoch + 1)
    query.stop()
    seconds, requests = restart(query, query.epoch)
    report(f"binshift, recovery after {steps} steps", seconds, 1, requests)
    query.stop()


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
            for who, n in by_caller(r for r in requests if r.ours):
                print(f"    {n:4} {who}", flush=True)

    yield report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--steps", type=int, nargs="*", default=[1, 4, 40])
    parser.add_argument("--details", action="store_true", help="print who asked for what")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, reporting(args.details) as report:
        spark = session(Path(scratch), memory="2g", **{"spark.sql.streaming.minBatchesToRetain": "100"})
        runs = iter(range(1000))

        def make(provider: str, conf: dict[str, str] | None = None) -> CountedQuery:
            return CountedQuery(spark, Path(scratch) / f"run{next(runs)}", provider, args.partitions, conf=conf)

        for provider, name in ((STOCK_PROVIDER, "stock"), (PROVIDER, "binshift")):
            idle(make, report, provider, name)
        watched(make, report)
        prepared(make, report)
        for steps in args.steps:
            recovery(make, report, steps)
        spark.stop()


if __name__ == "__main__":
    main()
