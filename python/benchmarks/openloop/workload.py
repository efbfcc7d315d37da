"""The workload of a benchmark: a query, the input that fills its state, and the measured input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from openloop.feed import Input

__all__ = ["Workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A stateful query over files.

    Parameters
    ----------
    name : str
        Unique for everything in here, because filled checkpoints and files are kept under this name.
    build : callable
        Makes the query from the stream of the files.
    schema : str or StructType
        Schema of the files.
    mode : str
        Output mode.
    write_fill : callable
        Writes the input that fills the state into a directory: a parquet file for each epoch.
    write_stream : callable
        Writes the measured input into a directory, see `Input`, and gives its rows per interval.
    interval : float
        Seconds of one interval.
    conf : mapping
        Settings of the query's session.
    """

    name: str
    build: Callable[[DataFrame], DataFrame]
    schema: str | StructType
    mode: str
    write_fill: Callable[[Path], None]
    write_stream: Callable[[Path], int]
    interval: float
    conf: Mapping[str, str] = field(default_factory=dict)

    def fill_files(self, scratch: Path) -> Path:
        """The directory with the input that fills the state; written at first use."""
        directory = scratch / f"fill-{self.name}"
        if not directory.exists():
            directory.mkdir(parents=True)
            self.write_fill(directory)
        return directory

    def fill_epochs(self, scratch: Path) -> int:
        """Epochs that fill the state, one for each file."""
        return len(list(self.fill_files(scratch).iterdir()))

    def stream_files(self, scratch: Path) -> Input:
        """The measured input; written at first use."""
        directory, rows = scratch / f"stream-{self.name}", scratch / f"stream-{self.name}.rows"
        if not rows.exists():
            directory.mkdir(parents=True, exist_ok=True)
            rows.write_text(str(self.write_stream(directory)))
        return Input(directory, int(rows.read_text()), self.interval)

    def digest(self, spark: SparkSession, checkpoint: Path) -> str:
        """A digest of all rows of the state at the newest batch, regardless of their partitions."""
        sums = []
        for options in _stores(spark, checkpoint):
            state = spark.read.format("statestore").options(**options).load(str(checkpoint))
            row = F.xxhash64(*[F.to_json(F.struct(c)) for c in state.columns if c != "partition_id"])
            sums.append(state.agg(F.count("*"), F.sum(row.cast("decimal(38,0)"))).first())
        return hashlib.sha256(repr([tuple(s) for s in sums if s is not None]).encode()).hexdigest()[:16]


def _stores(spark: SparkSession, checkpoint: Path) -> Iterator[dict[str, str]]:
    """Options of Spark's `statestore` reader with which all state of a checkpoint is read."""
    metadata = spark.read.format("state-metadata").load(str(checkpoint))
    named = {r.operatorId: (r.operatorName, r.operatorProperties) for r in metadata.collect()}
    for operator, (name, properties) in sorted(named.items()):
        options = {"operatorId": str(operator)}
        if name == "symmetricHashJoin":
            yield from ({**options, "joinSide": side} for side in ("left", "right"))
        elif "stateVariables" in (properties or ""):
            variables = json.loads(json.loads(properties)["stateVariables"])
            yield from ({**options, "stateVarName": v["stateName"]} for v in variables)
        else:
            yield options
