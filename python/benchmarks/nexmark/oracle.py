"""Computes the expected results of the queries with pandas, without Spark or code of the queries.

Rows are tuples of a query's columns, timestamps as milliseconds since 1970, sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nexmark.generator import AUCTION, BID, PERSON
from nexmark.windows import PAPER, Windows

if TYPE_CHECKING:
    from nexmark.queries import Query

Rows = list[tuple[Any, ...]]
KINDS = {"person": PERSON, "auction": AUCTION, "bid": BID}


def expected(
    query: Query, files: Iterable[Path], windows: Windows = PAPER, watermark_ms: int | None = None
) -> Rows:
    """The rows that the query has given once it has read `files`.

    Parameters
    ----------
    query : Query
        Which query.
    files : iterable of Path
        All files that it has read.
    windows : Windows
        As given to the query.
    watermark_ms : int, optional
        The watermark of the newest epoch, on which it depends which windows are over; Spark reports it as
        ``progress.eventTime["watermark"]``. Without it, that of an epoch after the last with data, which
        Spark runs when no file is left, is assumed: `watermark`.

    Returns
    -------
    list of tuple
        In update mode, the newest row of each key.
    """
    files = list(files)
    at = watermark(query, files, windows) if watermark_ms is None else watermark_ms
    return rows(pa.Table.from_pandas(ANSWERS[query.name](Stream(files), windows, at), preserve_index=False))


def watermark(query: Query, files: Iterable[Path], windows: Windows = PAPER) -> int:
    """The watermark of an epoch that follows those which read `files`, in milliseconds since 1970."""
    stream = Stream(list(files))
    newest = (stream.of(kind, []).t.max() for kind in query.watermarked)
    return max(0, min((int(t) for t in newest if not pd.isna(t)), default=0) - windows.delay_ms)


def settled(query: Query, outputs: Mapping[int, pa.Table]) -> Rows:
    """All rows that a query gave, by epoch; in update mode, the newest of each key."""
    tables = [outputs[epoch] for epoch in sorted(outputs)]
    if not query.key:
        return sorted(row for table in tables for row in rows(table))
    newest = {}
    for table in tables:
        keys = zip(*(_plain(table[name]) for name in query.key), strict=True)
        newest.update(zip(keys, zip(*map(_plain, table.columns), strict=True), strict=True))
    return sorted(newest.values())


def rows(table: pa.Table) -> Rows:
    """A table as sorted tuples of plain numbers and texts."""
    return sorted(zip(*map(_plain, table.columns), strict=True))


@dataclass(frozen=True)
class Stream:
    """The events of some files."""

    files: list[Path]

    def of(self, kind: str, names: list[str]) -> pd.DataFrame:
        """Events of one kind: their time `t` in milliseconds, and the named fields."""
        columns = ["event_type", "date_time", *(f"{kind}.{name}" for name in names)]
        tables = []
        for file in self.files:
            table = pq.ParquetFile(file).read(columns=columns)
            table = table.filter(pc.equal(table["event_type"], KINDS[kind]))
            fields = [pc.struct_field(table[kind], name) for name in names]
            tables.append(pa.table([table["date_time"], *fields], ["t", *names]))
        whole = pa.concat_tables(tables)
        return pd.DataFrame({name: _column(whole[name]) for name in whole.column_names})


def _q1(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    bids = stream.of("bid", ["auction", "bidder", "price"])
    return pd.DataFrame(
        {"auction": bids.auction, "bidder": bids.bidder, "price": bids.price * 89 // 100, "t": bids.t}
    )


def _q2(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    bids = stream.of("bid", ["auction", "price"])
    return bids.loc[bids.auction % 123 == 0, ["auction", "price"]]


def _q3(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    people, auctions = (
        stream.of("person", ["id", "name", "city", "state"]),
        stream.of("auction", ["id", "seller", "category"]),
    )
    people, auctions = people[people.state.isin(["OR", "ID", "CA"])], auctions[auctions.category == 10]
    found = people.merge(auctions, left_on="id", right_on="seller", suffixes=("", "_auction"))
    return found[["name", "city", "state", "id_auction"]]


def _q4(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    sold = _sold(stream, windows, at)
    sold["starts"] = sold.opened // windows.average_ms * windows.average_ms
    groups = sold.groupby(["starts", "category"]).price.agg(["sum", "count"]).reset_index()
    groups["ends"] = groups.starts + windows.average_ms
    groups["price"] = groups["sum"] // groups["count"]
    over = groups.ends <= at - windows.auction_ms
    return groups.loc[over, ["starts", "ends", "category", "price"]]


def _q5(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    bids = stream.of("bid", ["auction"])
    bids["slide"] = bids.t // windows.hot_slide_ms * windows.hot_slide_ms
    counts = bids.groupby(["slide", "auction"]).size().reset_index(name="bids")
    counts = _sliding(counts, windows.hot_ms, windows.hot_slide_ms, at)
    counts = counts.groupby(["starts", "ends", "auction"]).bids.sum().reset_index()
    best = counts.sort_values(["starts", "bids", "auction"]).drop_duplicates("starts", keep="last")
    return best[["starts", "ends", "auction", "bids"]]


def _q6(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    sold = _sold(stream, windows, at).sort_values(["opened", "id"])
    found = []
    for seller, sales in sold.groupby("seller"):
        prices = sales.price.tolist()
        for i, auction in enumerate(sales.id):
            last = prices[max(0, i + 1 - windows.last_prices) : i + 1]
            found.append((seller, auction, sum(last) // len(last)))
    return pd.DataFrame(found, columns=["seller", "auction", "price"])


def _q7(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    bids = stream.of("bid", ["price", "auction", "bidder"])
    bids["slide"] = bids.t // windows.highest_slide_ms * windows.highest_slide_ms
    order = ["price", "auction", "bidder"]
    bids = bids.sort_values(["slide", *order]).drop_duplicates("slide", keep="last")
    bids = _sliding(bids, windows.highest_ms, windows.highest_slide_ms, at)
    best = bids.sort_values(["starts", *order]).drop_duplicates("starts", keep="last")
    return best[["starts", "ends", *order]]


def _q8(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    people, auctions = stream.of("person", ["id", "name"]), stream.of("auction", ["id", "seller"])
    pairs = people.merge(auctions, left_on="id", right_on="seller", suffixes=("", "_auction"))
    since = pairs.t_auction - pairs.t
    return pairs.loc[(since >= 0) & (since < windows.new_user_ms), ["id", "name", "id_auction", "t"]]


def _q11(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    bids = stream.of("bid", ["bidder"]).sort_values(["bidder", "t"])
    # For Spark a bid at the very end of a session still belongs to it.
    begins = ~(bids.groupby("bidder").t.diff() <= windows.session_gap_ms)
    sessions = bids.groupby(["bidder", begins.cumsum()]).t.agg(["count", "min", "max"]).reset_index("bidder")
    sessions["ends"] = sessions["max"] + windows.session_gap_ms
    return sessions.loc[sessions.ends <= at, ["bidder", "count", "min", "ends"]]


def _q12(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    bids = stream.of("bid", ["bidder"])
    bids["starts"] = bids.t // windows.count_ms * windows.count_ms
    counts = bids.groupby(["bidder", "starts"]).size().reset_index(name="bids")
    counts["ends"] = counts.starts + windows.count_ms
    return counts[["bidder", "bids", "starts", "ends"]]


def _sold(stream: Stream, windows: Windows, at: int) -> pd.DataFrame:
    """Auctions with their highest valid bid, as far as their time is over at the watermark."""
    auctions = stream.of("auction", ["id", "seller", "category", "reserve", "expires"])
    auctions = auctions[auctions.t <= at - windows.auction_ms].rename(columns={"t": "opened"})
    pairs = auctions.merge(stream.of("bid", ["auction", "price"]), left_on="id", right_on="auction")
    valid = (pairs.t >= pairs.opened) & (pairs.t < pairs.expires) & (pairs.price >= pairs.reserve)
    return pairs[valid].groupby(["id", "opened", "seller", "category"]).price.max().reset_index()


def _sliding(slides: pd.DataFrame, length: int, slide: int, at: int) -> pd.DataFrame:
    """The facts about each slide, once for each window over it that has ended."""
    copies = [slides.assign(starts=slides.slide - back) for back in range(0, length, slide)]
    found = pd.concat(copies, ignore_index=True)
    found["ends"] = found.starts + length
    return found[found.ends <= at]


def _column(column: pa.ChunkedArray) -> pd.Series:
    """Timestamps as milliseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return column.to_pandas()


def _plain(column: pa.ChunkedArray) -> list[Any]:
    return _column(column).tolist()


ANSWERS: dict[str, Callable[[Stream, Windows, int], pd.DataFrame]] = {
    "q1": _q1,
    "q2": _q2,
    "q3": _q3,
    "q4": _q4,
    "q5": _q5,
    "q6": _q6,
    "q7": _q7,
    "q8": _q8,
    "q11": _q11,
    "q12": _q12,
}
