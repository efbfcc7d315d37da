"""What requests to S3 cost an hour, with Spark's own provider and with binshift, and what a rescale adds.

A server with an S3 API counts the requests that S3A makes. Each query runs with two numbers of partitions,
and a line through both tells the requests with 200. `make bench-costs` does that.

How fast the machine is makes no difference. Maintenance runs after a number of epochs, and few epochs are
retained, so that old files are deleted soon, but as many at a time as by default.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import binshift
from binshift.session import CHANGELOG_KEY, PROVIDER, PROVIDER_KEY, STOCK_PROVIDER
from devtools.results import read
from field.places import s3_place
from field.store import Store
from openloop.session import session
from s3prices import KINDS, Counts, Line, Request, by_kind, dollars, extra, per_hour

#: Epochs until files are deleted as regularly as they are made, and those that are counted: a multiple of
#: the ten from a snapshot to the next, and of the thirty whose files are deleted at a time.
SETTLE, COUNTED = 72, 60
#: Epochs from one run of maintenance to the next, as if they took ten seconds.
MAINTENANCE = 6
#: Epochs that are counted from the request for a rescale on.
RESCALED = 60
#: What binshift does by the clock: what that is about, and how often it is done in an hour.
CLOCK = {
    "a look for requests": ({"binshift/requests"}, 3600 // 5),
    "statistics saved": ({"binshift", "binshift/statistics.json"}, 60),
}
BY_CLOCK = set().union(*(about for about, _ in CLOCK.values()))
#: After twenty epochs, and a minute at least, binshift checks whether the next partitions can be rebuilt.
BETWEEN_CHECKS, CHECKED = 20, 16
MANY = 200

INTERVAL_KEY = "spark.sql.streaming.stateStore.maintenanceInterval"
SETTINGS = {
    CHANGELOG_KEY: "true",
    "spark.sql.streaming.minBatchesToRetain": "2",
    # Thirty versions are deleted at a time by default, too: 0.3 times 100.
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "15",
    INTERVAL_KEY: "1h",
}


class CountingStore(Store):
    """A store that notes each request."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0)
        self.requests: list[Request] = []

    def start(self) -> None:
        """Starts the server, and counts from now on."""
        super().start()
        assert self._server is not None
        inner = self._server.app

        def app(environ: dict[str, Any], respond: Any) -> Any:
            asked = (environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"])
            request = Request.of(*asked, has_source="HTTP_X_AMZ_COPY_SOURCE" in environ)

            def counted(status: str, *more: Any) -> Any:
                # A client repeats a request at which the server fails, as this one may if many come at once.
                if not status.startswith("5"):
                    self.requests.append(request)
                return respond(status, *more)

            return inner(environ, counted)

        self._server.app = app


class Query:
    """A count by key that takes an epoch when it is told to."""

    def __init__(
        self, spark: Any, store: CountingStore, root: Path, provider: str, partitions: int, **conf: str
    ) -> None:
        self.spark, self.store, self.epochs = spark.newSession(), store, 0
        self.name, self.source = root.name, root / "source"
        self.source.mkdir(parents=True)
        shuffled = {"spark.sql.shuffle.partitions": str(partitions)}
        for key, value in {**SETTINGS, **shuffled, PROVIDER_KEY: provider, **conf}.items():
            self.spark.conf.set(key, value)
        rows = self.spark.readStream.schema("k long").json(str(self.source))
        write = rows.groupBy("k").count().writeStream.format("noop").outputMode("update")
        self.query = write.option("checkpointLocation", f"s3a://states/{root.name}").start()

    def run(self, epochs: int, pause: float = 0, until: Callable[[], bool] = lambda: False) -> list[int]:
        """Runs some epochs, fewer if `until` comes true, and returns how many partitions each had."""
        partitions: list[int] = []
        while len(partitions) < epochs and not until():
            time.sleep(pause)
            part = self.source / f".{self.epochs}"
            part.write_text("".join(f'{{"k": {(self.epochs * 7 + i) % 997}}}\n' for i in range(400)))
            part.rename(self.source / f"{self.epochs}.json")
            self.query.processAllAvailable()
            self.epochs += 1
            partitions.append(self.query.lastProgress["stateOperators"][0]["numShufflePartitions"])
            if self.epochs % MAINTENANCE == 0:
                maintain(self.spark, self.name)
        return partitions

    def counted(self, run: Callable[[], list[int]], **what: Any) -> dict[str, Any]:
        """Counts the requests of a run, which returns how many partitions each of its epochs had."""
        begun = len(self.store.requests)
        partitions = run()
        ours = (r for r in self.store.requests[begun:] if r.checkpoint == self.name)
        return {**what, "partitions": partitions, "requests": Counter((r.kind, r.about) for r in ours)}

    def stop(self) -> None:
        """Ends the query, and waits until its listeners know."""
        self.query.stop()
        self.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(120_000)


def maintain(spark: Any, checkpoint: str) -> None:
    """Does the maintenance of each store of a checkpoint.

    Relies on Spark: from 4.3 on, a provider's maintenance has two parts.
    """
    stores = spark._jvm.java.lang.Class.forName("org.apache.spark.sql.execution.streaming.state.StateStore$")
    loaded = stores.getDeclaredField("loadedProviders")
    loaded.setAccessible(True)
    providers = loaded.get(None).values().toSeq()
    for i in range(providers.size()):
        provider = providers.apply(i)
        if f"/{checkpoint}/" not in provider.stateStoreId().checkpointRootLocation():
            continue
        methods = {m.getName() for m in provider.getClass().getMethods()}
        parts = methods & {"doSnapshotMaintenance", "doCleanupMaintenance"} or {"doMaintenance"}
        for part in sorted(parts, reverse=True):
            getattr(provider, part)()


def measure(spark: Any, store: CountingStore, root: Path, provider: str, n: int) -> Iterable[dict[str, Any]]:
    """Counts idle epochs and, with binshift, a prepared rescale to twice as many partitions."""
    query = Query(spark, store, root, provider, n)
    query.run(SETTLE)
    what = {"provider": "stock" if provider == STOCK_PROVIDER else "binshift"}
    yield query.counted(lambda: query.run(COUNTED), **what, action="idle")
    if provider == PROVIDER:
        yield query.counted(lambda: rescale(query, 2 * n), **what, action="rescale")
    query.stop()


def rescale(query: Query, to: int) -> list[int]:
    controller = binshift.attach(query.query)
    controller.rescale(to)
    # Time to copy, as epochs of ten seconds have.
    partitions = query.run(RESCALED, pause=2, until=lambda: controller.migration() is None)
    print(f"a rescale to {to} took {len(partitions)} epochs", flush=True)
    assert partitions[-1] == to, partitions
    return partitions + query.run(RESCALED - len(partitions))


def checks(spark: Any, store: CountingStore, root: Path, n: int) -> Iterable[dict[str, Any]]:
    """Counts epochs in which binshift checks partitions as often as it may."""
    query = Query(spark, store, root, PROVIDER, n, **{INTERVAL_KEY: "1ms"})
    query.run(SETTLE)
    yield query.counted(lambda: query.run(COUNTED), provider="binshift", action="checks")
    query.stop()


def report(runs: list[dict[str, Any]]) -> None:
    """Prints the requests of an hour with many partitions, and those that a rescale to twice as many adds."""
    lines = {name: line(of(runs, name, "idle")) for name in ("stock", "binshift")}
    print_table(
        "requests of an epoch",
        {f"{n}, {part}": c for n, of_epoch in lines.items() for part, c in vars(of_epoch).items()},
    )
    clock = {name: once(of(runs, "binshift", "idle"), about) for name, (about, _) in CLOCK.items()}
    check = a_check(of(runs, "binshift", "checks"), lines["binshift"])
    print_table("by the clock", {**clock, "a partition checked": check})
    rows = {}
    for seconds in (10, 60):
        for name, epoch in lines.items():
            times = CHECKED * 3600 / (BETWEEN_CHECKS * seconds)
            often = [(check, times), *((clock[what], n) for what, (_, n) in CLOCK.items())]
            by_clock = [{k: n * c[k] for k in KINDS} for c, n in often] if name == "binshift" else []
            rows[f"{name}, {seconds} s"] = per_hour(epoch.at(MANY), seconds, *by_clock)
    print_table(f"an hour, {MANY} partitions", rows)
    rescales = {len_of(r): added(r, lines["binshift"]) for r in of(runs, "binshift", "rescale")}
    (few, less), (many, more) = sorted(rescales.items())
    rows = {f"{n} to {2 * n}": c for n, c in rescales.items()}
    rows[f"{MANY} to {2 * MANY}"] = Line.through((few, less), (many, more)).at(MANY)
    print_table("a prepared rescale adds", rows)


def of(runs: list[dict[str, Any]], provider: str, action: str) -> list[dict[str, Any]]:
    return [r for r in runs if (r["provider"], r["action"]) == (provider, action)]


def len_of(run: dict[str, Any]) -> int:
    """The number of partitions with which a run began."""
    return int(run["partitions"][0])


def paced(run: dict[str, Any]) -> dict[str, float]:
    """The requests of a run but for those by the clock, whose number depends on how long it took."""
    return by_kind({r: n for r, n in run["requests"].items() if r[1] not in BY_CLOCK})


def line(idle: list[dict[str, Any]]) -> Line:
    """The requests of an idle epoch."""
    few, many = ((len_of(r), {k: n / len(r["partitions"]) for k, n in paced(r).items()}) for r in idle)
    return Line.through(few, many)


def added(run: dict[str, Any], epoch: Line) -> dict[str, float]:
    return extra(paced(run), epoch, run["partitions"])


def once(runs: list[dict[str, Any]], about: set[str]) -> dict[str, float]:
    """The requests of something that is done by the clock, and makes one of the rarest kind."""
    done = [by_kind({r: n for r, n in run["requests"].items() if r[1] in about}) for run in runs]
    counts = {k: sum(d[k] for d in done) for k in KINDS}
    times = min(n for n in counts.values() if n)
    return {k: round(n / times) for k, n in counts.items()}


def a_check(runs: list[dict[str, Any]], epoch: Line) -> dict[str, float]:
    """The requests by which a partition is checked."""
    (run,) = runs
    checked = len(run["partitions"]) // BETWEEN_CHECKS * len_of(run)
    return {k: n / checked for k, n in added(run, epoch).items()}


def print_table(head: str, rows: Mapping[str, Counts]) -> None:
    print(f"\n| {head} | {' | '.join(KINDS)} | dollars |\n|---|{'---|' * (len(KINDS) + 1)}")
    for name, counts in rows.items():
        print(f"| {name} | {' | '.join(f'{counts[k]:,.2f}' for k in KINDS)} | {dollars(counts):.5f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs=2, default=[4, 12])
    parser.add_argument(
        "--results", type=Path, default=Path("build/s3costs.jsonl"), help="where counts are kept"
    )
    parser.add_argument("--report", action="store_true", help="run nothing; report what is there")
    args = parser.parse_args()
    if not args.report:
        args.results.unlink(missing_ok=True)
        run(sorted(args.partitions), args.results)
    report(load(args.results))


def run(partitions: list[int], results: Path) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = CountingStore()
    store.start()
    place = s3_place(store.endpoint)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as tmp:
        scratch = Path(tmp)
        jars = {"spark.jars": ",".join(map(str, place.jars))}
        spark = session(scratch, "local[8]", "2g", **place.settings, **jars)
        # So that Spark's own maintenance has its interval from here, and hardly ever runs.
        first = Query(spark, store, scratch / "first", STOCK_PROVIDER, 1)
        first.run(1)
        with ThreadPoolExecutor() as queries:
            started = [
                queries.submit(save, measure(spark, store, scratch / f"{name}{n}", provider, n), results)
                for n in partitions
                for provider, name in ((STOCK_PROVIDER, "stock"), (PROVIDER, "binshift"))
            ]
            for query in started:
                query.result()
        save(checks(spark, store, scratch / "checks", partitions[0]), results)
        first.stop()
        spark.stop()
    store.stop()


def save(runs: Iterable[dict[str, Any]], file: Path) -> None:
    for run in runs:
        requests = sorted([*request, n] for request, n in run["requests"].items())
        with file.open("a") as out:
            out.write(json.dumps({**run, "requests": requests}) + "\n")
        print(run["provider"], run["action"], run["partitions"], flush=True)


def load(file: Path) -> list[dict[str, Any]]:
    runs = read(file)
    if not runs:
        raise SystemExit(f"{file} has no counts; leave --report out")
    return [{**run, "requests": {(k, about): n for k, about, n in run["requests"]}} for run in runs]


if __name__ == "__main__":
    main()
