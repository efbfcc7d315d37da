"""A query that was started, and migrated, on an older Spark goes on with this one, and is rescaled here.

The oracle is the same query over the same input on Spark's own RocksDB provider, in this Spark throughout.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

import binshift.inspect
from binshift import AllAtOnce
from binshift.errors import UnsupportedVersionError
from binshift.session import SUPPORTED_SPARK, jar_for
from harness import STOCK, StreamRun, assert_same_results
from local.inspected import comparable, expected, read
from local.queries import QUERIES
from local.settings import AVRO, CHECKSUMS, IDS, JOIN_3, NO_CHANGELOG, ONE_EPOCH

HERE = Path(__file__).parent
BEFORE, AFTER = range(6), range(6, 12)
Older = Callable[..., str]
#: The versions of Spark before this one, oldest first.
OLDER = [v for v in SUPPORTED_SPARK if v < ".".join(pyspark.__version__.split(".")[:2])]
#: Their interpreters.
PYTHON = {v: HERE.parents[1] / f".venv-{v}/bin/python" for v in OLDER}
#: The one from which upgrades are always tested: the newest that has an environment.
USUAL = max((v for v in OLDER if PYTHON[v].exists()), default=OLDER[-1] if OLDER else "")

pytestmark = pytest.mark.needs_spark("4.2", reason="an upgrade goes to this Spark from an older one")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Older]:
    """Runs a query on an older Spark; all queries of a version share one process."""
    log = tmp_path_factory.mktemp("older")
    processes: dict[str, subprocess.Popen[str]] = {}

    def run(spark: str, **what: Any) -> str:
        if spark not in processes:
            processes[spark] = start(spark, log / spark)
        process = processes[spark]
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()
        answer = next((line for line in process.stdout if line.startswith("done ")), None)
        assert answer is not None, (log / spark).read_text()[-4000:]
        return answer.split()[1]

    yield run
    for process in processes.values():
        process.stdin.close()
        process.stdout.read()
        process.wait()


def start(spark: str, log: Path) -> subprocess.Popen[str]:
    python = PYTHON[spark]
    if not python.exists():
        pytest.skip(f"there is no {python}; 'make setup SPARK={spark}' makes it")
    try:
        jar_for(f"{spark}.0")
    except UnsupportedVersionError as missing:
        pytest.skip(str(missing))
    # Settings for the JVMs of this run must not reach the other Spark.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "BINSHIFT_TESTS_"))}
    with log.open("w") as stderr:
        return subprocess.Popen(
            [str(python), str(HERE / "older_spark.py")],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """The part of a run on one older Spark, and the bins' targets after its epochs."""

    spark: str
    epochs: range
    targets: dict[int, Any]


def upgraded(
    older: Older, spark: Any, root: Path, name: str, conf: dict[str, str], parts: Sequence[Part]
) -> StreamRun:
    """A run whose first epochs were on older versions of Spark; it is not yet started."""
    query = QUERIES[name]
    run = StreamRun(spark, root / "run", query.build, mode=query.mode, conf=conf)
    versions = []
    for part in parts:
        what = {"name": name, "root": str(run.root), "conf": conf, "targets": part.targets}
        versions.append(older(part.spark, epochs=list(part.epochs), **what))
        assert versions[-1].startswith(f"{part.spark}.")
    run.outputs = pickle.loads((run.root / "outputs").read_bytes())
    assert json.loads((run.checkpoint / "binshift/layout.json").read_text())["spark_version"] == versions[0]
    return run


def assert_inspected(run: StreamRun, name: str, *older_versions: int) -> None:
    """State that each Spark has written is read without a JVM, with the results of this Spark."""
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        for version in (*older_versions, AFTER.stop):
            for option in QUERIES[name].state:
                mine = comparable(read(checkpoint, version, option))
                assert mine == comparable(expected(run, version, option))


def assert_exact(run: StreamRun, root: Path, name: str, conf: dict[str, str]) -> None:
    query = QUERIES[name]
    oracle = StreamRun(run.spark, root / "oracle", query.build, mode=query.mode, provider=STOCK, conf=conf)
    oracle.start()
    oracle.run(*BEFORE, *AFTER)
    assert_same_results(run, oracle, query.state)
    oracle.stop()


DEFAULT = ("join-full", "tws-jvm")
#: Settings that Spark has only had since some version.
SETTINGS = [
    ("4.1", "count", IDS),
    ("4.2", "tws-jvm", IDS | CHECKSUMS),
    ("4.1", "tws-jvm", IDS),
    ("4.1", "tws-jvm", AVRO),
    ("4.1", "join-full", JOIN_3),
    ("4.1", "count", NO_CHANGELOG),
    ("4.2", "session-fixed", CHECKSUMS),
]


def of_matrix(before: str, name: str, conf: dict[str, str]) -> Any:
    """Parameters of a test; those of the usual older version and of default settings are always run."""
    is_default = before == USUAL and name in DEFAULT and not conf
    return pytest.param(before, name, conf, marks=[pytest.mark.matrix] * (not is_default))


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "name", "conf"),
    [
        *(of_matrix(before, name, {}) for before in OLDER for name in QUERIES),
        *(
            of_matrix(before, name, conf)
            for before in OLDER
            for since, name, conf in SETTINGS
            if since <= before
        ),
    ],
)
def test_a_query_that_migrated_on_an_older_spark_is_rescaled_on_this_one(
    older, before, spark, tmp_path, name, conf
):
    conf = ONE_EPOCH | conf
    part = Part(before, BEFORE, {1: 4, 3: "shuffle"})
    run = upgraded(older, spark, tmp_path, name, conf, [part]).start()
    assert run.attach().routing().partitions == 4
    for epoch in AFTER:
        run.run(epoch)
        if epoch in (7, 9):
            run.attach().rescale({7: 3, 9: 5}[epoch], strategy=AllAtOnce(), prepare=epoch == 9)
    assert run.attach().routing().partitions >= 3
    assert_exact(run, tmp_path, name, conf)
    run.stop()
    assert_inspected(run, name, BEFORE.stop)


#: The operators that differ most in their use of a store.
OVER_TWO = [
    ("count", IDS),
    ("dedup", {}),
    ("session-fixed", {}),
    ("join-full", {}),
    ("pandas-with-state", {}),
    ("tws-jvm", IDS),
    ("tws-rows", {}),
]


@pytest.mark.matrix
@pytest.mark.needs_spark("4.3", reason="there are two versions before it")
@pytest.mark.parametrize(("name", "conf"), OVER_TWO)
def test_a_query_that_went_from_one_older_spark_to_the_next_is_rescaled_on_each(
    older, spark, tmp_path, name, conf
):
    conf = ONE_EPOCH | conf
    parts = [Part("4.1", BEFORE[:3], {0: 4}), Part("4.2", BEFORE[3:], {3: 3})]
    run = upgraded(older, spark, tmp_path, name, conf, parts).start()
    run.run(AFTER[0])
    assert run.attach().routing().partitions == 3
    run.attach().rescale(5, strategy=AllAtOnce(), prepare=False)
    run.run(*AFTER[1:])
    assert run.attach().routing().partitions == 5
    assert run.attach().history()["partitions"].to_pylist() == [4, 3, 5]
    assert_exact(run, tmp_path, name, conf)
    run.stop()
    assert_inspected(run, name, *(part.epochs.stop for part in parts))


@pytest.mark.long
@pytest.mark.parametrize("before", [pytest.param(v, marks=[pytest.mark.matrix] * (v != USUAL)) for v in OLDER])
def test_a_migration_that_was_under_way_on_an_older_spark_is_carried_on(older, before, spark, tmp_path):
    conf = ONE_EPOCH | IDS
    run = upgraded(older, spark, tmp_path, "count", conf, [Part(before, BEFORE, {4: "slowly"})]).start()
    # The older Spark has carried out some of the plan's four steps.
    assert run.attach().history().num_rows < 4
    run.run(*AFTER)
    assert run.attach().routing().partitions == 4
    assert run.attach().history().num_rows == 4
    assert_exact(run, tmp_path, "count", conf)
    run.stop()
