"""One driver process: counts rows by key, first with Spark's own provider, then with binshift's.

Started again after it died, it continues from the checkpoint.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.driver import Outputs, counter
from harness import STOCK, StreamRun, session

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--stock-epochs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--bins", help="what the session asks for, if not for what all tests do")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    spark = session("local[2,3]", **dict(c.split("=", 1) for c in args.conf))
    run = StreamRun(spark, args.root, counter(args.root, None, "aggregate"))
    if args.bins:
        run.spark.conf.set("spark.sql.streaming.stateStore.binshift.bins", args.bins)
    run.outputs = Outputs(args.root / "outputs")
    for provider, last in ((STOCK, args.stock_epochs), ("binshift.StateStoreProvider", args.epochs)):
        fed = len(list(run.input.glob("*.json")))
        # An epoch that one provider has begun is finished by the next one, whichever it is.
        if fed < last or provider != STOCK:
            run.spark.conf.set(PROVIDER, provider)
            run.start()
            run.query.processAllAvailable()
            run.run(*range(fed, last))
            if provider == STOCK:
                run.stop()
    layout = json.loads((run.checkpoint / "binshift/layout.json").read_text())
    report = {
        "state": [[*key, *value] for key, value in run.state()],
        "partitions": run.attach().routing().partitions,
        "keys": sum(run.attach().stats()["keys"].to_pylist()),
        "metadata": [m.numPartitions for m in run.metadata()],
        "numRowsTotal": run.query.lastProgress.stateOperators[0].numRowsTotal,
        "taken_over_at": layout["taken_over_at"],
    }
    (args.root / "report.json").write_text(json.dumps(report))
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main()
