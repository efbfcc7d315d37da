"""Checkpoints for tests of inspection, and the state that Spark's own `statestore` source reads from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType, YearMonthIntervalType

import binshift.inspect
from binshift import AllAtOnce, Fluid, OnDemand, Strategy
from binshift.cli.main import cli
from binshift.inspect.tools.diff import Side, diff
from binshift.session import PROVIDER
from harness import STOCK, StreamRun, end_maintenance, until
from local.queries import QUERIES, Query
from local.settings import (
    AVRO,
    CHECKSUMS,
    IDS,
    JOIN_3,
    JOIN_4,
    NO_CHANGELOG,
    ONE_EPOCH,
    SNAPSHOTS,
    STORE,
    needs,
)

KEYS = {
    "b": "v % 2 = 0",
    "i8": "cast(v - 20 as tinyint)",
    "i16": "cast(v * 7 - 100 as smallint)",
    "i32": "cast(v * 70000 - 99 as int)",
    "f32": "cast(v / 3 - 5 as float)",
    "f64": "if(v = 7, double('NaN'), v / 7 - 2)",
    "d12": "cast(v * 1.25 - 9 as decimal(12, 3))",
    "d38": "cast(v * -123456789012345678.125 as decimal(38, 6))",
    "bin": "cast(k as binary)",
    "dt": "date_add(date'1969-12-01', cast(v * 3 as int))",
    "ntz": "cast(t as timestamp_ntz)",
    "ym": "make_ym_interval(cast(v as int) - 9, 3)",
    "dts": "make_dt_interval(cast(v as int) - 7, 1, 2, 3.5)",
    "n": "if(v % 3 = 0, null, k)",
    "ni": "if(v % 3 = 1, null, cast(v as int))",
    "st": "named_struct('a', v, 'b', named_struct('c', k, 'd', array(named_struct('e', cast(v as short)))))",
    "sarr": "array(k, null, concat(k, 'ä€'))",
}
VALUES = {
    "arr": "array(v, null, v + 1)",
    "m": "map(k, v, 'z', null)",
    "nil": "null",
    "barr": "array(v % 2 = 0, null)",
    "darr": "array(cast(v as decimal(30, 2)), null)",
    "nst": "if(v % 2 = 0, null, named_struct('x', v))",
    "mm": "map(v, array(map('q', v)))",
    "vr": "parse_json(concat('{\"a\":', v, '}'))",
    "none": "cast(array() as array<string>)",
}


def all_types(df: DataFrame) -> DataFrame:
    """Counts by keys of all possible types, and keeps the last value of every possible type."""
    typed = df.withColumns({n: F.expr(e) for n, e in (KEYS | VALUES).items()})
    values = [*VALUES, "d12", "d38", "ym", "dts", "bin", "b", "ntz"]
    last = typed.groupBy("k", "t", *KEYS).agg(*[F.last(n).alias(f"last_{n}") for n in values])
    # All are in the output, so that none is optimised away; as text, since Python has no type for some.
    return last.select("k", *[F.col(f"last_{n}").cast("string") for n in values])


@dataclass(frozen=True)
class Case:
    """A query, the settings that change its state, and its number of epochs."""

    query: str
    provider: str = PROVIDER
    conf: dict[str, str] = field(default_factory=dict)
    epochs: int = 8
    #: The numbers of partitions: new partitions come, all but one retire, and some come back.
    journey: tuple[int, ...] = (4, 1, 3)
    prepare: bool = False
    strategy: type[Strategy] = AllAtOnce


def query_of(case: Case) -> Query:
    return Query(all_types, "update") if case.query == "types" else QUERIES[case.query]


def make(spark: Any, root: Any, case: Case) -> StreamRun:
    """Runs the case and stops it, so that its checkpoint no longer changes."""
    query = query_of(case)
    run = StreamRun(spark, root, query.build, query.mode, case.provider, ONE_EPOCH | case.conf)
    if STORE + "binshift.bins" not in case.conf:
        run.spark.conf.set(STORE + "binshift.bins", "12")
    # No stores are left from before, so that snapshots are always made at the same versions.
    end_maintenance(spark)
    run.start()
    targets = list(case.journey) if case.provider == PROVIDER else []
    for epoch in range(case.epochs):
        run.run(epoch)
        if case.prepare:
            until(lambda: run.attach().migration() is None, seconds=1)
        if targets and run.attach().migration() is None:
            run.attach().rescale(targets.pop(0), strategy=case.strategy(), prepare=case.prepare)
    run.stop()
    end_maintenance(spark)
    assert not targets
    return run


def spark_reads(run: StreamRun, version: int, **options: str) -> list[dict[str, Any]]:
    """The rows that the `statestore` source reads at a version, with intervals of months as numbers."""
    reader = run.spark.read.format("statestore").options(batchId=str(version - 1), **options)
    df = reader.load(str(run.readable(version - 1)))
    columns = [_months(F.col(f"`{f.name}`"), f.dataType).alias(f.name) for f in df.schema.fields]
    table: pa.Table = df.select(columns).toArrow()
    return table.to_pylist()


def pairs(rows):
    return [(r.get("partition_id", r.get("partition")), r["key"], r["value"]) for r in rows]


def values_of_join(rows, drop):
    """A join's keys without its suffixes and values without the mark of a match; Spark shows neither."""
    return [(r["partition"], list(r["key"].values())[:-1], list(r["value"].values())[:drop]) for r in rows]


def read(checkpoint, version, option):
    """State that is read without a JVM, in the form of the `statestore` source for the same option."""
    sources = checkpoint.sources(version=version)
    side = option.get("joinSide")
    if side:
        names = (f"{side}-keyWithIndexToValue", f"{side}-keyWithTsToValues")
        (source,) = (s for s in sources if s.store.name in names or s.family.name in names)
        matched = [f.name for f in source.family.value.fields].index("matched")
        return values_of_join(checkpoint.scan(source).read_all().to_pylist(), matched)
    if option.get("readRegisteredTimers"):
        rows = checkpoint.scan(version=version, family="$eventTimers_keyToTimestamp").read_all().to_pylist()
        return [(r["partition"], r["key"]["key"], r["key"]["expiryTimestampMs"]) for r in rows]
    rows = checkpoint.scan(version=version, family=option.get("stateVarName")).read_all().to_pylist()
    if option.get("stateVarName") == "minutes":
        return [(r["partition"], r["key"]["key"], r["key"]["userKey"], r["value"]) for r in rows]
    return pairs(rows)


def expected(run, version, option):
    rows = spark_reads(run, version, **option)
    if "joinSide" in option:
        # Under format 4, Spark's source shows random bytes after the row as the event time.
        keys = [[v for n, v in r["key"].items() if n != "__event_time"] for r in rows]
        return [(r["partition_id"], k, list(r["value"].values())) for k, r in zip(keys, rows, strict=True)]
    if "readRegisteredTimers" in option:
        return [(r["partition_id"], r["key"], r["expiration_timestamp_ms"]) for r in rows]
    if option.get("stateVarName") == "values":
        return [(r["partition_id"], r["key"], r["list_element"]) for r in rows]
    if option.get("stateVarName") == "minutes":
        return [(r["partition_id"], r["key"], r["user_map_key"], r["user_map_value"]) for r in rows]
    return pairs(rows)


def _months(column: Column, kind: DataType) -> Column:
    """Intervals of months become numbers, and columns of an aggregation with the same name are renamed."""
    if not isinstance(kind, StructType):
        return column
    names: list[str] = []
    for f in kind.fields:
        n = next(n for n in range(1, 99) if f"{f.name}_{n}".removesuffix("_1") not in names)
        names.append(f"{f.name}_{n}".removesuffix("_1"))
    renamed = StructType([StructField(n, f.dataType) for n, f in zip(names, kind.fields, strict=True)])
    column = column.cast(renamed)
    if not any(_is_months(f) for f in kind.fields):
        return column
    parts = [(column[f.name], f) for f in renamed.fields]
    return F.struct(
        *[
            (F.extract(F.lit("YEAR"), c) * 12 + F.extract(F.lit("MONTH"), c) if _is_months(f) else c).alias(
                f.name
            )
            for c, f in parts
        ]
    )


def _is_months(field: StructField) -> bool:
    return isinstance(field.dataType, YearMonthIntervalType)


def comparable(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows as sorted text, with maps as lists of pairs, as Spark may give them."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            return "NaN"
        if isinstance(value, dict):
            return [(k, plain(v)) for k, v in value.items()]
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return bytes(value) if isinstance(value, bytearray) else value

    return sorted(repr(plain(r)) for r in rows)


CASES = {
    "types": Case("types", conf=SNAPSHOTS, epochs=4, journey=(3,)),
    "session-stock": Case("session-fixed", STOCK, SNAPSHOTS, epochs=3),
    "join-4": Case("join-full", conf=JOIN_4 | IDS),
    "tws": Case("tws-jvm", conf=CHECKSUMS),
}
MATRIX = {
    "types-all-the-way": Case("types"),
    "types-stock": Case("types", STOCK, epochs=3),
    "count-stock": Case("count", STOCK),
    "count": Case("count", conf=IDS | CHECKSUMS),
    "count-snappy": Case("count", conf={STORE + "compression.codec": "snappy"}),
    "count-zstd": Case("count", STOCK, {STORE + "compression.codec": "zstd"}),
    "count-zstd-sst": Case("count", conf={STORE + "rocksdb.compression": "zstd"} | SNAPSHOTS),
    "session": Case("session-fixed", conf=CHECKSUMS | SNAPSHOTS),
    "session-dynamic": Case("session-dynamic", conf=NO_CHANGELOG),
    "sliding": Case("sliding-append"),
    "dedup": Case("dedup", conf=IDS | NO_CHANGELOG),
    "dedup-watermark": Case("dedup-watermark"),
    "dedup-within-watermark": Case("dedup-within-watermark", conf=NO_CHANGELOG),
    "join-2": Case("join-full", conf=IDS | CHECKSUMS),
    "join-2-stock": Case("join-left", STOCK),
    "join-3": Case("join-semi", conf=JOIN_3 | SNAPSHOTS),
    "join-4-checksums": Case("join-window", conf=JOIN_4 | CHECKSUMS | SNAPSHOTS),
    "join-4-stock": Case("join-full", STOCK, JOIN_4 | IDS),
    "pandas-with-state": Case("pandas-with-state", conf=IDS),
    "jvm-with-state": Case("jvm-with-state", conf=CHECKSUMS),
    "tws-stock": Case("tws-jvm", STOCK, CHECKSUMS | IDS | SNAPSHOTS),
    "tws-ids": Case("tws-jvm", conf=IDS | NO_CHANGELOG),
    "tws-avro": Case("tws-jvm", conf=AVRO | IDS),
    "tws-rows": Case("tws-rows", conf=SNAPSHOTS),
    "tws-pandas": Case("tws-pandas", STOCK),
    "tws-initial-state": Case("tws-initial-state"),
    "tws-prepared": Case("tws-jvm", conf=SNAPSHOTS, epochs=16, journey=(3, 2), prepare=True),
    "session-fluid": Case(
        "session-fixed", conf=CHECKSUMS | {STORE + "binshift.bins": "4"}, strategy=Fluid, epochs=16
    ),
    "count-on-demand": Case("count", strategy=OnDemand),
    "tws-comma": Case("tws-jvm", conf={STORE + "rocksdb.mergeOperatorVersion": "1"} | CHECKSUMS | SNAPSHOTS),
}
#: The names of all cases; the default test run only has the first few.
PARAMETERS = [
    pytest.param(name, marks=[pytest.mark.matrix] * (name in MATRIX) + needs(case.conf))
    for name, case in (CASES | MATRIX).items()
]


def run(name: str, *arguments: object) -> Result:
    """Runs a command; returns its output and exit code."""
    return CliRunner().invoke(cli, [name, *map(str, arguments)])


def differences(one: Path, other: Path) -> int:
    """How many rows of the newest states of two checkpoints differ, in all stores."""
    with binshift.inspect.open(one) as a, binshift.inspect.open(other) as b:
        return sum(
            diff(Side(a, mine), Side(b, theirs)).read_all().num_rows
            for mine, theirs in zip(a.sources(), b.sources(), strict=True)
        )
