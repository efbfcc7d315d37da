"""NEXMark, the benchmark of stream processing that Megaphone is measured with, in PySpark.

`write` makes a stream of persons, auctions and bids, a Parquet file for each epoch; `events` reads it with
Spark's file source, so that it can be replayed; `QUERIES` are queries 1 to 8, 11 and 12; `expected` says
what a query has to give, without Spark::

    write("/tmp/nexmark", rate=20_000, seconds=60)
    query = QUERIES["q5"].build(events(spark, "/tmp/nexmark"), MINUTE)

All events are in one table: `event_type` (0 a person, 1 an auction, 2 a bid), `date_time`, and a struct for
each kind, of which only one isn't null. The suites for Flink and Beam have the same layout, so queries look as
they do there. It is one stream with one order, and Spark reads from Parquet only those fields of the structs
that a query uses. `date_time` is when an event is scheduled at the given rate: the latency of an event is the
commit of its epoch minus that time.

Query 6 has a state function in Python: set PYSPARK_PYTHON to an interpreter that has pandas and pyarrow.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nexmark.generator import BASE, SCHEMA, Shape, generate, write
from nexmark.oracle import expected, rows, settled, watermark
from nexmark.queries import QUERIES, Query
from nexmark.windows import MINUTE, PAPER, Windows

__all__ = [
    "BASE",
    "MINUTE",
    "PAPER",
    "QUERIES",
    "SCHEMA",
    "Query",
    "Shape",
    "Windows",
    "events",
    "expected",
    "generate",
    "rows",
    "settled",
    "watermark",
    "write",
]


def events(spark: SparkSession, directory: Path | str, files_per_epoch: int = 1) -> DataFrame:
    """The files of `write`, those that are there and those to come, as a stream.

    Parameters
    ----------
    spark : SparkSession
        Where the query is to run.
    directory : Path or str
        Where the files are, or will be put by a link or a rename, which keep their times.
    files_per_epoch : int
        How many files an epoch reads, each in a task of its own.
    """
    schema = from_arrow_schema(SCHEMA)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_epoch).parquet(str(directory))
