"""The queries of NEXMark that Megaphone is measured with (VLDB 2019, section 5.1), and two later ones.

Plain PySpark: nothing here knows which state-store provider runs the query. A query takes the stream of
`nexmark.events`; its rows have only columns that are numbers, texts and timestamps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from nexmark.windows import PAPER, Windows

# Python workers cannot import this module, so what is defined here travels with the query.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the suite.

    Parameters
    ----------
    name : str
        "q1" to "q8", "q11" and "q12".
    define : callable
        From the stream and the lengths of windows to the query's DataFrame.
    mode : str
        Output mode.
    stateful : bool
        Whether there is state to migrate.
    key : tuple of str
        In update mode: the columns by which a later row replaces an earlier one.
    watermarked : tuple of str
        The kinds of events that watermarks are kept of.
    """

    name: str
    define: Callable[[DataFrame, Windows], DataFrame]
    mode: str = "append"
    stateful: bool = True
    key: tuple[str, ...] = ()
    watermarked: tuple[str, ...] = ()

    def build(self, events: DataFrame, windows: Windows = PAPER) -> DataFrame:
        """The query over a stream of events."""
        return self.define(events, windows)


def q1(events: DataFrame, windows: Windows) -> DataFrame:
    """Currency conversion: every bid, its price in euros.

    As in the paper's code, one dollar is 0.89 euros, and prices are whole cents.
    """
    euros = F.expr("bid.price * 89 DIV 100").alias("price")
    return _of("bid", events).select("bid.auction", "bid.bidder", euros, "date_time")


def q2(events: DataFrame, windows: Windows) -> DataFrame:
    """Selection: bids for every 123rd auction.

    NEXMark names five auctions. As in the paper's code, these are those whose id 123 divides, so that a stream
    of any length has some.
    """
    return _of("bid", events).where("bid.auction % 123 = 0").select("bid.auction", "bid.price")


def q3(events: DataFrame, windows: Windows) -> DataFrame:
    """Local item suggestion: who sells in category 10 in Oregon, Idaho or California.

    An incremental join whose state holds all such people and auctions for ever, as in the paper.
    """
    people = _of("person", events).select("person.id", "person.name", "person.city", "person.state")
    auctions = _of("auction", events).where("auction.category = 10")
    auctions = auctions.select(F.col("auction.id").alias("auction"), "auction.seller")
    near = people.where("state IN ('OR', 'ID', 'CA')")
    return auctions.join(near, F.col("seller") == F.col("id")).select("name", "city", "state", "auction")


def q4(events: DataFrame, windows: Windows) -> DataFrame:
    """Average price of closed auctions by category.

    The paper gives a new average of all auctions so far whenever one closes. Spark chains operators in append
    mode only, where results are final: so this averages the auctions that were opened in a window of time.
    `_sold` says when they close.
    """
    window = F.window("opened", _interval(windows.average_ms))
    average = F.expr("sum(price) DIV count(price)").alias("price")
    averages = _sold(events, windows).groupBy(window, "category").agg(average)
    return averages.select(*_bounds("window"), "category", "price")


def q5(events: DataFrame, windows: Windows) -> DataFrame:
    """Hot items: the auction with most bids in each sliding window.

    Of auctions with as many bids it is the one with the largest id, as in the paper's code, which however
    finds one for each worker; this finds it among all.
    """
    bids = _watermarked(_of("bid", events).select("bid.auction", "date_time"), windows)
    window = F.window("date_time", _interval(windows.hot_ms), _interval(windows.hot_slide_ms))
    counts = bids.groupBy(window, "auction").agg(F.count("*").alias("bids"))
    best = F.max(F.struct("bids", "auction")).alias("best")
    return counts.groupBy("window").agg(best).select(*_bounds("window"), "best.auction", "best.bids")


def q6(events: DataFrame, windows: Windows) -> DataFrame:
    """Average of each seller's last 10 selling prices, a row for each sale.

    Sales are in the order in which the auctions were opened rather than closed, since `_sold` gives them so.
    The paper's code averages by the buyer; its text and NEXMark by the seller, as here.
    """
    sold = _sold(events, windows).select("seller", "opened", "auction", "price")
    schema = "seller long, auction long, price long"
    processor = LastPrices(windows.last_prices)
    return sold.groupBy("seller").transformWithState(processor, schema, "Append", "None")


def q7(events: DataFrame, windows: Windows) -> DataFrame:
    """The highest bid of each window.

    The paper's code gives the price alone; as in NEXMark, this says also whose it was, of equal ones that
    with the largest ids.
    """
    bids = _watermarked(_of("bid", events).select("bid.*", "date_time").drop("extra"), windows)
    window = F.window("date_time", _interval(windows.highest_ms), _interval(windows.highest_slide_ms))
    highest = bids.groupBy(window).agg(F.max(F.struct("price", "auction", "bidder")).alias("best"))
    return highest.select(*_bounds("window"), "best.*")


def q8(events: DataFrame, windows: Windows) -> DataFrame:
    """New users: auctions that a person opened within 12 hours of registering.

    A few auctions come before their sellers. They are left out, where the paper's code lets those pass that
    come in the same round.
    """
    people = _watermarked(
        _of("person", events).select("person.id", "person.name", "date_time"), windows, "registered"
    )
    auctions = _of("auction", events).select(
        "auction.seller", F.col("auction.id").alias("auction"), "date_time"
    )
    soon = (F.col("opened") >= F.col("registered")) & (
        F.col("opened") < F.col("registered") + _length(windows.new_user_ms)
    )
    opened = _watermarked(auctions, windows, "opened")
    return people.join(opened, (F.col("id") == F.col("seller")) & soon).select(
        "id", "name", "auction", "registered"
    )


def q11(events: DataFrame, windows: Windows) -> DataFrame:
    """User sessions: how many bids a user made before a while of silence. Not in the paper."""
    bids = _watermarked(_of("bid", events).select("bid.bidder", "date_time"), windows)
    session = F.session_window("date_time", _interval(windows.session_gap_ms)).alias("session")
    sessions = bids.groupBy(session, "bidder").agg(F.count("*").alias("bids"))
    return sessions.select("bidder", "bids", *_bounds("session"))


def q12(events: DataFrame, windows: Windows) -> DataFrame:
    """Bids of each user in windows of processing time. Not in the paper.

    Windows are of the scheduled time, at which an event comes unless the query lags, so that results can be
    repeated. Counts come at each epoch, as they do where time is that of processing.
    """
    bids = _watermarked(_of("bid", events).select("bid.bidder", "date_time"), windows)
    counts = bids.groupBy(F.window("date_time", _interval(windows.count_ms)), "bidder")
    return counts.agg(F.count("*").alias("bids")).select("bidder", "bids", *_bounds("window"))


class LastPrices(StatefulProcessor):
    """Keeps a seller's last prices; gives their average, in whole cents, at each sale."""

    def __init__(self, length: int) -> None:
        self.length = length

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before the first rows of an epoch."""
        self.prices = handle.getValueState("prices", "prices array<long>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Called by Spark with the sales of one seller in an epoch."""
        prices = list(self.prices.get()[0]) if self.prices.exists() else []
        for row in sorted(rows, key=lambda r: (r.opened, r.auction)):
            prices = [*prices, row.price][-self.length :]
            yield Row(seller=key[0], auction=row.auction, price=sum(prices) // len(prices))
        self.prices.update((prices,))

    def close(self) -> None:
        """Called by Spark after the last rows of an epoch."""


def _sold(events: DataFrame, windows: Windows) -> DataFrame:
    """Auctions that are over and have a buyer, with the highest valid bid.

    A bid is valid if it comes while the auction is open and is no lower than its reserve. Watermarks follow
    the time of opening, so an auction's result comes when the longest of its time would be over, not its own
    one; it is the same result.
    """
    bids = _of("bid", events).select(F.col("bid.auction").alias("item"), "bid.price", "date_time")
    fields = ("id", "seller", "category", "reserve", "expires")
    auctions = _of("auction", events).select(*(f"auction.{f}" for f in fields), "date_time")
    valid = F.expr("item = id AND bid_time >= opened AND bid_time < expires AND price >= reserve")
    in_time = F.col("bid_time") < F.col("opened") + _length(windows.auction_ms)
    bids, auctions = _watermarked(bids, windows, "bid_time"), _watermarked(auctions, windows, "opened")
    # One event time is left: of two, Spark would not know which one to go by.
    pairs = bids.join(auctions, valid & in_time).drop("bid_time")
    sold = pairs.groupBy("opened", F.col("id").alias("auction"), "seller", "category")
    return sold.agg(F.max("price").alias("price"))


def _of(kind: str, events: DataFrame) -> DataFrame:
    """Events of one kind; by their type, since Parquet can skip what a filter of plain columns leaves out."""
    number = {"person": 0, "auction": 1, "bid": 2}[kind]
    return events.where(F.col("event_type") == number)


def _watermarked(df: DataFrame, windows: Windows, name: str = "date_time") -> DataFrame:
    return df.withColumnRenamed("date_time", name).withWatermark(name, _interval(windows.delay_ms))


def _interval(ms: int) -> str:
    return f"{ms} milliseconds"


def _length(ms: int) -> Column:
    return F.expr(f"INTERVAL '{ms / 1000:.3f}' SECOND")


def _bounds(window: str) -> tuple[Column, Column]:
    return F.col(f"{window}.start").alias("starts"), F.col(f"{window}.end").alias("ends")


_bids = partial(Query, watermarked=("bid",))
QUERIES: dict[str, Query] = {
    query.name: query
    for query in (
        Query("q1", q1, stateful=False),
        Query("q2", q2, stateful=False),
        Query("q3", q3),
        Query("q4", q4, watermarked=("auction", "bid")),
        _bids("q5", q5),
        Query("q6", q6, watermarked=("auction", "bid")),
        _bids("q7", q7),
        Query("q8", q8, watermarked=("person", "auction")),
        _bids("q11", q11),
        _bids("q12", q12, mode="update", key=("bidder", "starts")),
    )
}
