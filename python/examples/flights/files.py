"""Departures and arrivals in Parquet files; the stream reads one file in each epoch."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
from data import SCHEMA, Flights
from pyspark.sql import DataFrame, SparkSession

__all__ = ["Files"]

_DEPARTURES = 3


class Files:
    """A folder of Parquet files.

    Parameters
    ----------
    flights : Flights
        The flights that are written.
    root : Path
        The parent of the folder, and of the file that is being written.
    """

    def __init__(self, flights: Flights, root: Path) -> None:
        self.flights = flights
        self._folder, self._scratch = root / "input", root / "next.parquet"
        self._folder.mkdir()

    def stream(self, spark: SparkSession) -> DataFrame:
        """The files as a stream."""
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._folder))

    def batch(self, spark: SparkSession) -> DataFrame:
        """All existing files as a batch."""
        return spark.read.schema(SCHEMA).parquet(str(self._folder))

    def write_departures(self) -> None:
        """Writes the departures of the whole year."""
        departures = self.flights.departures()
        for i in range(_DEPARTURES):
            part = departures.iloc[
                i * len(departures) // _DEPARTURES : (i + 1) * len(departures) // _DEPARTURES
            ]
            self._write(part, f"departures-{i:05}.parquet")

    def write_arrivals(self, first: int, count: int) -> None:
        """Writes the arrivals of `count` flights from number `first` on."""
        self._write(self.flights.arrivals(first, count), f"arrivals-{first:09}.parquet")

    def forget_arrivals(self) -> None:
        """Deletes the arrivals, for a query that has not read them and gets its own."""
        for arrivals in self._folder.glob("arrivals-*"):
            arrivals.unlink()

    def _write(self, part: pd.DataFrame, name: str) -> None:
        part.to_parquet(self._scratch, index=False, coerce_timestamps="us")
        os.replace(self._scratch, self._folder / name)
