"""A program that runs a query on Spark's own provider, without migrations and kills, for comparison."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos.life import Life
from chaos.victim import kept, state_of
from harness import STOCK, session


def main(root: Path, file: Path) -> None:
    life = Life.load(root)
    spark = session("local[2]", **{"spark.jars": os.environ["CHAOS_JAR"]})
    life.feed(life.epochs)
    run = kept(spark, life, STOCK, 0).start()
    run.query.processAllAvailable()
    outputs = {
        f.stem.split("-")[0]: json.loads(f.read_text()) for f in (life.root / "outputs").glob("*-0.json")
    }
    temporary = file.with_suffix(".next")
    temporary.write_text(json.dumps({"outputs": outputs, "state": state_of(run, life)}))
    os.replace(temporary, file)
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
