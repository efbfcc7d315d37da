"""One driver process: has partitions placed on an executor, drains another one, and spreads the state again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import binshift
from cluster.driver import Outputs, await_executors
from harness import StreamRun, session


def counts(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def main() -> None:
    root = Path(sys.argv[1])
    # By default, a partition leaves an executor that is busy for 3 s.
    spark = session("local-cluster[3,1,1024]", **{"spark.locality.wait": "1min"})
    await_executors(spark)
    run = StreamRun(spark, root, counts)
    run.outputs = Outputs(root / "outputs")
    run.start()
    epoch = 0

    def go_on(epochs: int) -> None:
        nonlocal epoch
        for _ in range(epochs):
            run.run(epoch)
            epoch += 1

    def finish(migration: binshift.Migration) -> None:
        while not migration.status.is_over:
            go_on(1)
        # Partitions are placed at one epoch and run where they are placed from then on.
        go_on(2)

    go_on(2)
    controller = run.attach()
    executors = controller._placement().executors
    finish(controller.rescale(4, strategy=binshift.AllAtOnce(), place_on=[executors[0]]))
    placed = controller._placement().partitions
    finish(controller.drain(executors[0], strategy=binshift.AllAtOnce()))
    drained, sizes_drained = controller._placement().partitions, controller.routing().sizes()
    finish(controller.rebalance("bins", strategy=binshift.AllAtOnce()))
    report = {
        "executors": executors,
        "placed": placed,
        "drained": drained,
        "sizes_drained": sizes_drained,
        "balanced": controller._placement().partitions,
        "sizes": controller.routing().sizes(),
        "state": [[*key, *value] for key, value in run.state()],
        "partitions": controller.routing().partitions,
        "keys": sum(controller.stats()["keys"].to_pylist()),
        "numRowsTotal": run.query.lastProgress.stateOperators[0].numRowsTotal,
        "metadata": [m.numPartitions for m in run.metadata()],
    }
    (root / "report.json").write_text(json.dumps(report))
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main()
