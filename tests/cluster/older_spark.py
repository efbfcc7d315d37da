"""Runs queries on the Spark of its interpreter, as told by lines of JSON: the first part of what upgrades need.

Each line names a query, the directory of its run, its settings and its epochs. By epoch, it says what the bins
go to after it: a number of partitions, or "shuffle"; a migration that goes "slowly" is left under way. What
came out of the epochs is pickled into the directory.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from binshift import AllAtOnce, Batched
from jvms import SHARED, TESTS_JAR, quick, surroundings
from prepared import compile_jars, link_spark


def main() -> None:
    surroundings(SHARED)
    link_spark()
    compile_jars()
    from harness import session

    # There is only one JVM, so an archive of classes doesn't pay.
    flags = quick("-Xlog:disable")
    spark = session("local[2]", **flags | {"spark.jars": str(TESTS_JAR), "spark.executor.cores": "2"})
    try:
        for line in sys.stdin:
            run(spark, **json.loads(line))
            sys.stdout.write(f"done {spark.version}\n")
            sys.stdout.flush()
    finally:
        spark.stop()


def run(
    spark: Any, name: str, root: str, conf: dict[str, str], epochs: list[int], targets: dict[str, Any]
) -> None:
    from harness import StreamRun
    from local.queries import QUERIES

    query = QUERIES[name]
    stream = StreamRun(spark, Path(root), query.build, mode=query.mode, conf=conf).start()
    outputs = Path(root) / "outputs"
    if outputs.exists():
        # An even older Spark has begun the run.
        stream.outputs = pickle.loads(outputs.read_bytes())
    for epoch in epochs:
        stream.run(epoch)
        if str(epoch) in targets:
            move(stream, targets[str(epoch)])
    stream.stop()
    outputs.write_bytes(pickle.dumps(stream.outputs))


def move(stream: Any, target: int | str) -> None:
    controller = stream.attach()
    table = controller.routing()
    if target == "shuffle":
        owners = [(owner + 1) % table.partitions for owner in table.assignment]
        controller.submit(controller.plan(owners, strategy=AllAtOnce()), prepare=False)
    elif target == "slowly":
        controller.rescale(table.partitions + 2, strategy=Batched(table.bins // 8), prepare=False)
    else:
        controller.rescale(target, strategy=AllAtOnce(), prepare=False)


if __name__ == "__main__":
    main()
