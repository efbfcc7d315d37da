"""The queries of NEXMark as workloads: a stream at a set rate, after a time that fills the state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from nexmark import MINUTE, QUERIES, SCHEMA, Shape, generate
from nexmark.generator import AUCTION, AUCTIONS, PERSON, TOTAL
from openloop.workload import Workload

__all__ = ["LOOKS_AT", "nexmark"]

#: Epochs that fill the state.
FILLS = 4
#: Events that are generated at a time while the state is filled.
CHUNK = 500_000
#: The events that these queries use. Bids, which are most of the events, are left out when the state is filled.
LOOKS_AT = {"q3": (PERSON, AUCTION), "q8": (PERSON, AUCTION)}


def nexmark(
    query: str,
    rate: int,
    intervals: int,
    fill: int,
    interval: float = 1.0,
    seconds_open: int = 20,
    seed: int = 1,
) -> Workload:
    """A query at `rate` events per second, after `fill` events before the measured time.

    Auctions are open for at most `seconds_open`, which makes the state of queries 4 and 6 as large as one
    likes, as `fill` does that of 3 and 8.
    """
    # An auction is open for at most twice as long as it takes for so many others to begin.
    shape = Shape(in_flight_auctions=max(1, round(rate * AUCTIONS / TOTAL * seconds_open / 2)))
    longest = shape.longest_auction_ms(rate)
    windows = replace(MINUTE, auction_ms=longest, average_ms=max(1_000, longest // 4), new_user_ms=3_600_000)
    rows = round(rate * interval)

    def write_fill(directory: Path) -> None:
        each = fill // FILLS
        for i in range(FILLS):
            with pq.ParquetWriter(directory / f"{i:05}.parquet", SCHEMA, compression="lz4") as file:
                for first in range(i * each, (i + 1) * each, CHUNK):
                    table = generate(seed, rate, first, min(CHUNK, (i + 1) * each - first), shape)
                    if query in LOOKS_AT:
                        table = table.filter(pc.field("event_type").isin(LOOKS_AT[query]))
                    file.write_table(table)

    def write_stream(directory: Path) -> int:
        for i in range(intervals):
            part = directory / f"{i:05}"
            part.mkdir()
            table = generate(seed, rate, fill // FILLS * FILLS + i * rows, rows, shape)
            half = table.num_rows // 2
            pq.write_table(table.slice(0, half), part / "0.parquet", compression="lz4")
            pq.write_table(table.slice(half), part / "1.parquet", compression="lz4")
        return rows

    return Workload(
        name=f"{query}-{rate}-{intervals}-{fill}-{interval:g}-{seconds_open}-{seed}",
        build=lambda events: QUERIES[query].build(events, windows),
        schema=from_arrow_schema(SCHEMA),
        mode=QUERIES[query].mode,
        write_fill=write_fill,
        write_stream=write_stream,
        interval=interval,
    )
