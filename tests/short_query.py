"""A short query with a rescale. Its JVM archives the loaded classes in the file that is named."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.sql import functions as F

from harness import StreamRun, session
from jvms import quick


def main(archive: str) -> None:
    spark = session("local[2]", **quick(f"-Xlog:disable -XX:ArchiveClassesAtExit={archive}"))
    with TemporaryDirectory() as root:
        run = StreamRun(spark, Path(root), lambda df: df.groupBy("k").agg(F.count("*"), F.sum("v"))).start()
        run.run(0)
        run.attach().rescale(3)
        run.run(1, 2)
        run.stop()
        spark.stop()
    # A JVM writes the archive only if it ends normally, as it does when its input is closed.
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
