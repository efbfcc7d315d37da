"""A user's program in a JVM that exists before Python, by `spark-submit` or in the `pyspark` shell.

Counts rows by key, rescales meanwhile, compares with counts made in Python, and prints which parts are done.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

import binshift

ROOT = Path(os.environ["SUBMITTED_ROOT"])
#: Settings of `jvms.quick`, for the JVMs of executors.
SETTINGS = json.loads(os.environ["SUBMITTED_SETTINGS"])


def builder(master: str | None = None) -> SparkSession.Builder:
    made = SparkSession.builder.appName("submitted").config("spark.sql.shuffle.partitions", "2")
    for key, value in SETTINGS.items():
        made = made.config(key, value)
    return made if master is None else made.master(master)


def done(part: str) -> None:
    sys.stdout.write(f"done: {part}\n")
    sys.stdout.flush()


@contextmanager
def refused(text: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if text not in str(error):
            raise
    else:
        raise AssertionError(f"no error says: {text}")


def count_and_rescale(spark: SparkSession, name: str) -> None:
    """Rescales a query from 2 partitions to 3, and checks that all rows are counted."""
    source, expected = ROOT / name / "input", Counter[str]()
    source.mkdir(parents=True)
    frame = spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).json(str(source))
    writer = frame.groupBy("k").count().writeStream.outputMode("complete").format("memory").queryName(name)
    query = writer.option("checkpointLocation", str(ROOT / name / "checkpoint")).start()
    for epoch in range(5):
        keys = [f"key{(i * 7 + epoch) % 30}" for i in range(40)]
        expected.update(keys)
        (source / "next").write_text("\n".join(json.dumps({"k": k}) for k in keys))
        os.replace(source / "next", source / f"{epoch}.json")
        query.processAllAvailable()
        if epoch == 0:
            controller = binshift.attach(query)
            controller.rescale(3, strategy=binshift.AllAtOnce(), prepare=False)
    assert {r.k: r["count"] for r in spark.table(name).collect()} == expected
    assert controller.routing().partitions == 3, controller.routing()
    query.stop()
    done(name)


def refused_without_a_class_loader() -> None:
    """If no class loader can take the jar, `configure` says what to type instead."""
    thread = SparkContext._jvm.java.lang.Thread.currentThread()
    loader = thread.getContextClassLoader()
    thread.setContextClassLoader(loader.getParent())
    with refused(f"spark-submit --jars {binshift.jar_path()}"):
        binshift.configure(SparkSession.builder)
    thread.setContextClassLoader(loader)
    done("refused")


def jars_of_executors(spark: SparkSession) -> list[str]:
    jars = spark.sparkContext._jsc.sc().listJars()
    return sorted(jars.apply(i).rsplit("/", 1)[1] for i in range(jars.size()))


def submitted() -> None:
    """One session with separate executors, then a second session in the same JVM."""
    SparkContext._ensure_initialized()
    refused_without_a_class_loader()
    spark = binshift.configure(builder("local-cluster[2,1,1024]"), bins=16).getOrCreate()
    # The jars given to spark-submit stay, however the builder was made.
    assert jars_of_executors(spark) == sorted([binshift.jar_path().name, "tests.jar"]), jars_of_executors(spark)
    count_and_rescale(spark, "submitted")
    spark.stop()
    spark = binshift.configure(builder("local[2]"), bins=16).getOrCreate()
    count_and_rescale(spark, "again")
    spark.stop()


def shell(spark: SparkSession) -> None:
    """The shell's session and executors exist already, and have run a query on Spark's provider."""
    spark.range(3).createOrReplaceTempView("mine")
    older = spark.newSession()
    older.range(1).collect()
    again = binshift.configure(SparkSession.builder, bins=16).getOrCreate()
    assert again is spark
    binshift.configure(SparkSession.builder).getOrCreate()
    count_and_rescale(again, "shell")
    assert again.table("mine").count() == 3
    count_and_rescale(with_provider(again.newSession()), "new")
    refused_in_an_older_session(older)


def with_provider(spark: SparkSession) -> SparkSession:
    """A new session gets the settings with which the application was started, and not later ones."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", "binshift.StateStoreProvider")
    return spark


def refused_in_an_older_session(older: SparkSession) -> None:
    """A session from before the jar was added is refused, as its queries can't call binshift's rules."""
    with refused("was made before binshift was active"):
        count_and_rescale(with_provider(older), "older")
    done("older")


def by_settings() -> None:
    """All settings of `configure` are given on the command line."""
    with_settings = builder("local[2]").getOrCreate()
    count_and_rescale(with_settings, "settings")


def without_jar() -> None:
    """A session that is set up by hand, without the jar."""
    spark = builder("local[2]").getOrCreate()
    query = spark.readStream.format("rate").load().writeStream.format("noop")
    running = query.option("checkpointLocation", str(ROOT / "rate")).start()
    with refused(f"spark-submit --jars {binshift.jar_path()}"):
        binshift.attach(running)
    done("without")


if __name__ == "__main__":
    {f.__name__: f for f in (submitted, by_settings, without_jar)}[sys.argv[1]]()
