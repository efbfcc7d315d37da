"""Migrations for tests of shipping, and comparisons after them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

from pyspark.sql import DataFrame

from binshift import AllAtOnce, Controller, Migration, MigrationReport, Strategy
from harness import STOCK, StreamRun, assert_same_results, until
from local.queries import QUERIES, Query

Built = Callable[[DataFrame], DataFrame]

MAX_EPOCHS = 120
#: After these epochs, one runs per second, as background threads may get no processor for some time.
AT_FULL_SPEED = 15
SHIP = "spark.sql.streaming.stateStore.binshift.ship."
#: A timeout so long that a test that waits for it fails.
NEVER = "1h"


def begun(
    stream: Callable[..., StreamRun], name: str, build: Built = lambda built: built, **conf: str
) -> tuple[Query, StreamRun]:
    """The query of that name, changed by `build`, and a run of it after two epochs."""
    query = QUERIES[name]
    run = stream(lambda df: build(query.build(df)), mode=query.mode, conf=conf).start()
    run.run(0, 1)
    return query, run


def shifted(controller: Controller) -> list[int]:
    """A table that moves each partition's bins to the next partition."""
    table = controller.routing()
    return [(owner + 1) % table.partitions for owner in table.assignment]


def finish(run: StreamRun, migration: Migration, epoch: int) -> int:
    """Feeds epochs until the migration is over; returns the epoch after the last."""
    return feed_until(run, epoch, lambda: migration.status.is_over)


def feed_until(run: StreamRun, epoch: int, condition: Callable[[], bool]) -> int:
    """Feeds epochs until `condition` holds, if that needs time and epochs; returns the epoch after the last."""
    for number in range(MAX_EPOCHS):
        if until(condition, seconds=0 if number < AT_FULL_SPEED else 1):
            return epoch + number
        run.run(epoch + number)
    raise AssertionError(f"not so after {MAX_EPOCHS} epochs: {run.query.lastProgress}")


def submit_shift(run: StreamRun, strategy: Strategy | None = None, *, prepare: bool = True) -> Migration:
    """Submits a move of every bin to the next partition; feeds no epoch."""
    controller = run.attach()
    plan = controller.plan(shifted(controller), strategy=strategy or AllAtOnce())
    return controller.submit(plan, prepare=prepare)


def shift(
    run: StreamRun, epoch: int, strategy: Strategy | None = None, prepare: bool = True
) -> tuple[int, MigrationReport]:
    """Moves every bin to the next partition, and feeds epochs until that is done."""
    migration = submit_shift(run, strategy, prepare=prepare)
    return finish(run, migration, epoch), migration.wait(0)


def assert_never_migrated(run: StreamRun, query: Query, epochs: int, tmp_path: Path, **conf: str) -> None:
    """Checks that outputs and state equal those of the stock provider on the same input."""
    oracle = StreamRun(
        run.spark, tmp_path / "oracle", query.build, mode=query.mode, provider=STOCK, conf=conf
    ).start()
    oracle.run(*range(epochs))
    oracle.stop()
    assert_same_results(run, oracle, query.state)


def totals(run: StreamRun, *epochs: int) -> list[int]:
    """The numbers of rows in the state, from the reports of epochs."""
    return [run.progress(epoch).stateOperators[0].numRowsTotal for epoch in epochs]


def failed_tasks(run: StreamRun) -> int:
    """The number of failed attempts of tasks, in all jobs of the run that Spark remembers."""
    tracker = run.spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(run.query.runId))]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    infos = [tracker.getStageInfo(stage) for stage in stages]
    assert infos
    return sum(info.numFailedTasks for info in infos if info is not None)


def snapshots(run: StreamRun) -> dict[str, list[Path]]:
    """The snapshots of each partition, oldest first."""
    found: dict[str, list[Path]] = {}
    for file in (run.checkpoint / "state/0").glob("[0-9]*/**/*.zip"):
        found.setdefault(str(file.parent), []).append(file)
    return {place: sorted(files, key=version_of) for place, files in found.items()}


def families(snapshot: Path) -> dict[str, int]:
    """The numbers of column families, by name."""
    metadata = ZipFile(snapshot).read("metadata").decode()
    found: dict[str, int] = json.loads(metadata.partition("\n")[2])["columnFamilyMapping"]
    return found


def files_of(snapshot: Path) -> set[str]:
    """The names of the snapshot's files that are beside it."""
    metadata = ZipFile(snapshot).read("metadata").decode()
    return {file["dfsSstFileName"] for file in json.loads(metadata.partition("\n")[2])["sstFiles"]}


def own_files(snapshot: Path, *, of_none_in: Path) -> list[Path]:
    """The snapshot's files that the other one doesn't have."""
    return [snapshot.parent / "SSTs" / name for name in files_of(snapshot) - files_of(of_none_in)]


def flipped(content: bytes, part: slice = slice(None)) -> bytes:
    """The content with other bytes in that part."""
    changed = bytearray(content)
    changed[part] = bytes(b ^ 255 for b in changed[part])
    return bytes(changed)


#: RocksDB reads the last bytes of an SST when it opens the file.
END_OF_SST = slice(-64, None)


def damage(snapshot: Path, what: str, *, of_none_in: Path) -> None:
    """Damages a snapshot, and no file of the other one. Sizes stay the same, and no checksum tells."""
    for checksum in snapshot.parent.rglob(".*.crc"):
        checksum.unlink()
    if what == "zip":
        snapshot.write_bytes(b"not a snapshot")
    elif what == "MANIFEST":
        with ZipFile(snapshot) as zipped:
            contents = {name: zipped.read(name) for name in zipped.namelist()}
        with ZipFile(snapshot, "w") as zipped:
            for name, content in contents.items():
                # The first record's checksum is at its beginning.
                zipped.writestr(name, flipped(content) if name.startswith("MANIFEST") else content)
    else:
        own = own_files(snapshot, of_none_in=of_none_in)
        assert own
        for file in own:
            # It reads the first bytes when it reads the rows.
            part = END_OF_SST if what == "end of an SST" else slice(0, 32)
            file.write_bytes(flipped(file.read_bytes(), part))


def version_of(snapshot: Path) -> int:
    """The version of a snapshot."""
    return int(snapshot.stem.split("_")[0])
