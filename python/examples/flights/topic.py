"""Departures and arrivals in a topic of Kafka, as JSON, in transactions."""

from __future__ import annotations

from typing import Any

import pandas as pd
from confluent_kafka import Producer
from data import SCHEMA, Flights
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

__all__ = ["Topic"]

_TOPIC = "flights"
_SECONDS = 120


class Topic:
    """A topic with one partition, so that each transaction is read as a whole in one epoch.

    Parameters
    ----------
    flights : Flights
        The flights that are written.
    servers : str
        The address of a broker that has the topic `flights`.
    """

    def __init__(self, flights: Flights, servers: str) -> None:
        self.flights = flights
        self._options = {
            "kafka.bootstrap.servers": servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": _TOPIC,
            "startingOffsets": "earliest",
        }
        settings = {
            "bootstrap.servers": servers,
            "transactional.id": _TOPIC,
            "queue.buffering.max.messages": len(flights) + 1,
            # The producer logs nothing if the broker ends before it.
            "log_level": 0,
        }
        self._producer: Any = Producer(settings)
        self._producer.init_transactions(_SECONDS)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The topic as a stream."""
        return _parsed(spark.readStream.format("kafka").options(**self._options).load())

    def batch(self, spark: SparkSession) -> DataFrame:
        """All events of the topic as a batch."""
        return _parsed(spark.read.format("kafka").options(**self._options).load())

    def write_departures(self) -> None:
        """Writes the departures of the whole year."""
        self._write(self.flights.departures())

    def write_arrivals(self, first: int, count: int) -> None:
        """Writes the arrivals of `count` flights from number `first` on."""
        self._write(self.flights.arrivals(first, count))

    def forget_arrivals(self) -> None:
        """Does nothing: events stay in a topic, so a query that has not read them reads them first."""

    def _write(self, part: pd.DataFrame) -> None:
        lines = part.to_json(orient="records", lines=True, date_format="iso").splitlines()
        self._producer.begin_transaction()
        for line in lines:
            self._producer.produce(_TOPIC, value=line)
        self._producer.commit_transaction(_SECONDS)


def _parsed(messages: DataFrame) -> DataFrame:
    return messages.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("flight")).select(
        "flight.*"
    )
