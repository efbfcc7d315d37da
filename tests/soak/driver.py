"""The driver of a soak: three queries in one session, each of which always migrates; see run.py.

Started again after it died, it goes on where the checkpoints are. When `stop` is there, it processes what was
fed, writes the state of each query to `state.json`, and ends.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

import binshift
from binshift.session import PROVIDER
from chaos.life import committed
from chaos.victim import PATIENCE, Changes, Outputs
from harness import StreamRun, rows, session
from local.queries import QUERIES
from local.settings import ONE_EPOCH

#: An aggregation, a join, and a `transformWithState` with timers.
WORKLOAD = ("count", "join-inner", "tws-jvm")
BINS = {"spark.sql.streaming.stateStore.binshift.bins": "24"}
#: Spark keeps little about what has ended, so that growth has other causes.
_KEEPS_LITTLE = {
    f"spark.{name}": "20"
    for name in (
        "sql.streaming.numRecentProgressUpdates",
        "sql.ui.retainedExecutions",
        "ui.retainedJobs",
        "ui.retainedStages",
        "ui.retainedTasks",
    )
}
_SAMPLE_SECONDS = 30.0


def main(root: Path, master: str, number: int, pace: float) -> None:
    rng = random.Random(f"{root} {number}")
    conf = {"spark.executor.memory": "512m", "spark.decommission.enabled": "true"}
    spark = session(master, **PATIENCE, **conf, **_KEEPS_LITTLE, **{"spark.jars": os.environ["SOAK_JAR"]})
    assert SparkContext._gateway is not None
    (root / "jvm").write_text(str(SparkContext._gateway.proc.pid))
    runs = {name: started(spark, root / name, name, number) for name in WORKLOAD}
    changes = {name: Changes(run, rng, root / "plans.jsonl") for name, run in runs.items()}
    sampled = 0.0
    while not (root / "stop").exists():
        for name, run in runs.items():
            if not run.query.isActive:
                run.query.awaitTermination()
            feed(root / name)
            try:
                changes[name].make()
            except binshift.BinshiftError as error:
                # The query may be just starting, or an executor about to leave.
                note(root / "refused.jsonl", {"query": name, "refused": str(error)})
        if time.monotonic() - sampled >= _SAMPLE_SECONDS:
            sampled = time.monotonic()
            sample(spark, root)
        time.sleep(pace)
    for name, run in runs.items():
        run.query.processAllAvailable()
        history = run.attach().history().to_pylist()
        state = run.states(QUERIES[name].state)
        (root / name / "state.json").write_text(json.dumps({"state": state, "steps": len(history)}))
        run.stop()
    sample(spark, root)
    spark.stop()


def started(spark: SparkSession, root: Path, name: str, number: int, provider: str = PROVIDER) -> StreamRun:
    query = QUERIES[name]
    run = StreamRun(spark, root, query.build, query.mode, provider, ONE_EPOCH | BINS)
    run.outputs = Outputs(root / "outputs", number)
    return run.start()


def feed(root: Path) -> None:
    """Feeds the next epoch's input once the epoch before is committed, so that no epoch has two files."""
    epoch = committed(root) + 1
    file = root / "input" / f"{epoch:06}.json"
    if not file.exists():
        hidden = root / "next"
        hidden.write_text("\n".join(json.dumps(r) for r in rows(epoch)))
        # Spark orders files by these times.
        os.utime(hidden, (1_700_000_000 + 10 * epoch,) * 2)
        os.replace(hidden, file)


def sample(spark: SparkSession, root: Path) -> None:
    # Only this releases objects of the JVM that Python holds in cycles.
    gc.collect()
    jvm: Any = spark._jvm
    try:
        told = json.loads(jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestSoak.sample())
    except Py4JJavaError as error:
        # Spark iterates over its blocks on another thread, and fails if a block is reported meanwhile.
        if "ConcurrentModificationException" not in str(error):
            raise
        return
    epochs = {f"epochs of {name}": committed(root / name) + 1 for name in WORKLOAD}
    note(root / "driver.jsonl", {**told, **epochs})


def note(file: Path, what: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.write(json.dumps({"t": time.time(), **what}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
