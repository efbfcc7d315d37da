"""A query that was started, and migrated, on Spark 4.2 goes on with Spark 4.3, and is rescaled there.

The oracle is the same query over the same input on Spark's own RocksDB provider, in Spark 4.3 throughout.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from binshift import AllAtOnce
from binshift.errors import UnsupportedVersionError
from binshift.session import jar_for
from harness import STOCK, StreamRun, assert_same_results
from local.queries import QUERIES
from local.settings import AVRO, CHECKSUMS, IDS, JOIN_3, NO_CHANGELOG, ONE_EPOCH

HERE = Path(__file__).parent
OLDER = HERE.parents[1] / ".venv-4.2/bin/python"
BEFORE, AFTER = range(6), range(6, 12)
Older = Callable[..., str]

pytestmark = pytest.mark.needs_spark("4.3", reason="an upgrade goes from Spark 4.2 to this one")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Older]:
    """Runs a query on Spark 4.2, in one process for all of them."""
    if not OLDER.exists():
        pytest.skip(f"there is no {OLDER}; 'make setup SPARK=4.2' makes it")
    try:
        jar_for("4.2.0")
    except UnsupportedVersionError as missing:
        pytest.skip(str(missing))
    log = tmp_path_factory.mktemp("older") / "log.txt"
    # What is set for the JVMs of this run concerns the other Spark.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "BINSHIFT_TESTS_"))}
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [str(OLDER), str(HERE / "older_spark.py")],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip

        def run(**what: Any) -> str:
            process.stdin.write(json.dumps(what) + "\n")
            process.stdin.flush()
            answer = next((line for line in process.stdout if line.startswith("done ")), None)
            assert answer is not None, log.read_text()[-4000:]
            return answer.split()[1]

        yield run
        process.stdin.close()
        process.stdout.read()
        process.wait()


def upgraded(
    older: Older, spark: Any, root: Path, name: str, conf: dict[str, str], targets: dict[int, Any]
) -> StreamRun:
    """The run of a query whose first epochs were on Spark 4.2, not yet started."""
    query = QUERIES[name]
    run = StreamRun(spark, root / "run", query.build, mode=query.mode, conf=conf)
    version = older(name=name, root=str(run.root), conf=conf, epochs=list(BEFORE), targets=targets)
    assert version.startswith("4.2.")
    assert spark.version.startswith("4.3.")
    run.outputs = pickle.loads((run.root / "outputs").read_bytes())
    assert json.loads((run.checkpoint / "binshift/layout.json").read_text())["spark_version"] == version
    return run


def assert_exact(run: StreamRun, root: Path, name: str, conf: dict[str, str]) -> None:
    query = QUERIES[name]
    oracle = StreamRun(run.spark, root / "oracle", query.build, mode=query.mode, provider=STOCK, conf=conf)
    oracle.start()
    oracle.run(*BEFORE, *AFTER)
    assert_same_results(run, oracle, query.state)
    oracle.stop()


DEFAULT = ("join-full", "tws-jvm")


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        *(pytest.param(n, {}, marks=[pytest.mark.matrix] * (n not in DEFAULT)) for n in QUERIES),
        *(
            pytest.param(n, conf, marks=pytest.mark.matrix)
            for n, conf in [
                ("count", IDS),
                ("tws-jvm", IDS | CHECKSUMS),
                ("tws-jvm", AVRO),
                ("join-full", JOIN_3),
                ("count", NO_CHANGELOG),
                ("session-fixed", CHECKSUMS),
            ]
        ),
    ],
)
def test_a_query_that_migrated_on_the_older_spark_is_rescaled_on_this_one(older, spark, tmp_path, name, conf):
    conf = ONE_EPOCH | conf
    run = upgraded(older, spark, tmp_path, name, conf, {1: 4, 3: "shuffle"}).start()
    assert run.attach().routing().partitions == 4
    for epoch in AFTER:
        run.run(epoch)
        if epoch in (7, 9):
            run.attach().rescale({7: 3, 9: 5}[epoch], strategy=AllAtOnce(), prepare=epoch == 9)
    assert run.attach().routing().partitions >= 3
    assert_exact(run, tmp_path, name, conf)
    run.stop()


def test_a_migration_that_was_under_way_on_the_older_spark_is_carried_on(older, spark, tmp_path):
    conf = ONE_EPOCH | IDS
    run = upgraded(older, spark, tmp_path, "count", conf, {4: "slowly"}).start()
    # What the older Spark has decided; the plan has four steps.
    assert run.attach().history().num_rows < 4
    run.run(*AFTER)
    assert run.attach().routing().partitions == 4
    assert run.attach().history().num_rows == 4
    assert_exact(run, tmp_path, "count", conf)
    run.stop()
