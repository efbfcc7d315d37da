"""Runs the soak's queries on Spark's own provider, without migrations and kills, for comparison."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import STOCK, session
from local.queries import QUERIES
from soak.driver import WORKLOAD, started


def main(root: Path, target: Path) -> None:
    spark = session("local[2]", **{"spark.jars": os.environ["SOAK_JAR"]})
    for name in WORKLOAD:
        (target / name).mkdir(parents=True)
        (target / name / "input").symlink_to(root / name / "input")
        run = started(spark, target / name, name, 0, STOCK)
        run.query.processAllAvailable()
        (target / name / "state.json").write_text(json.dumps({"state": run.states(QUERIES[name].state)}))
        run.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
