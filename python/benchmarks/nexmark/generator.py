"""Persons, auctions and bids as NEXMark defines them, written once to Parquet files.

Of 50 events in a row the first is a person, the next 3 are auctions, the other 46 are bids. Ids count up;
auctions name a seller, and bids an auction and a bidder, among the newest ones, a few of which are yet to
come; one seller, auction and bidder of each hundred are hot. All that is random about event n is a hash of
the seed, n and the field, so that a stream does not depend on how it is cut into files.

Unlike NEXMark's own generator, texts are drawn from a few thousand different ones.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Longs = npt.NDArray[np.int64]

PERSON, AUCTION, BID = 0, 1, 2
#: Of how many events in a row how many are of each kind.
PERSONS, AUCTIONS, TOTAL = 1, 3, 50
FIRST_PERSON_ID, FIRST_AUCTION_ID, FIRST_CATEGORY_ID = 1000, 1000, 10
CATEGORIES = 5
#: How many ids that do not exist yet may be named.
ID_LEAD = 10
#: One of so many in a row is hot.
HOT_AMONG = 100
#: When event 0 is scheduled.
BASE = datetime(2026, 1, 1, tzinfo=UTC)
BASE_MS = int(BASE.timestamp() * 1000)

STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle"]
CITIES += ["Kent", "Cheyenne"]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]

TIME = pa.timestamp("ms", tz="UTC")
PERSON_FIELDS = {
    "id": pa.int64(),
    "name": pa.string(),
    "email_address": pa.string(),
    "credit_card": pa.string(),
    "city": pa.string(),
    "state": pa.string(),
    "extra": pa.string(),
}
AUCTION_FIELDS = {
    "id": pa.int64(),
    "item_name": pa.string(),
    "description": pa.string(),
    "initial_bid": pa.int64(),
    "reserve": pa.int64(),
    "expires": TIME,
    "seller": pa.int64(),
    "category": pa.int64(),
    "extra": pa.string(),
}
BID_FIELDS = {
    "auction": pa.int64(),
    "bidder": pa.int64(),
    "price": pa.int64(),
    "extra": pa.string(),
}
SCHEMA = pa.schema(
    [
        pa.field("event_type", pa.int32(), nullable=False),
        pa.field("date_time", TIME, nullable=False),
        pa.field("person", pa.struct(PERSON_FIELDS)),
        pa.field("auction", pa.struct(AUCTION_FIELDS)),
        pa.field("bid", pa.struct(BID_FIELDS)),
    ]
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of the stream; the defaults are NEXMark's.

    Parameters
    ----------
    in_flight_auctions : int
        Auctions that are open at a time, on average. With the rate it says how long an auction lasts, and
        with that how large the state of queries 4 and 6 becomes.
    active_people : int
        The newest so many people sell and bid.
    hot_auctions, hot_sellers, hot_bidders : int
        All but one of so many bids, auctions and bids are for or by a hot one.
    """

    in_flight_auctions: int = 100
    active_people: int = 1000
    hot_auctions: int = 2
    hot_sellers: int = 4
    hot_bidders: int = 4

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it has to be at least 1")

    def longest_auction_ms(self, rate: float) -> int:
        """The longest time that an auction is open, in milliseconds."""
        ahead = self.in_flight_auctions * TOTAL // AUCTIONS
        return max(1, int(2 * ahead * 1000 / rate))


class Draws:
    """Random numbers that are a hash of the seed, the event's number and the field's."""

    def __init__(self, seed: int, n: Longs) -> None:
        self._n = n.astype(np.uint64) + np.uint64(seed % 2**32 * 2**32)
        self._field = 0

    def bits(self) -> npt.NDArray[np.uint64]:
        """Numbers of 64 random bits, others at each call; Steele's SplitMix64."""
        self._field += 1
        x = (self._n ^ np.uint64(self._field * 0xD6E8FEB86659FD93 % 2**64)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    def below(self, bound: int | Longs) -> Longs:
        """Whole numbers from 0 to `bound` - 1."""
        return (self.bits() % np.asarray(bound).astype(np.uint64)).astype(np.int64)

    def prices(self) -> Longs:
        """Cents from 100 to 100 million, their logarithm spread evenly."""
        unit = (self.bits() >> np.uint64(11)).astype(np.float64) / 2.0**53
        return np.rint(np.power(10.0, unit * 6.0) * 100.0).astype(np.int64)

    def pick(self, texts: pa.Array) -> pa.Array:
        """One of `texts` for each event."""
        return texts.take(pa.array(self.below(len(texts))))


def generate(seed: int, rate: float, first: int, count: int, shape: Shape = Shape()) -> pa.Table:
    """The events from number `first` on.

    Parameters
    ----------
    seed : int
        Other seeds give other streams.
    rate : float
        Events per second of event time; event n has the time ``BASE + n / rate``, in whole milliseconds.
    first, count : int
        Number of the first event, and how many there are.
    shape : Shape
        Popularity and lifetimes.

    Returns
    -------
    pyarrow.Table
        Has `SCHEMA`: of the structs `person`, `auction` and `bid`, the one that `event_type` names is set.
    """
    if rate <= 0 or first < 0 or count < 0:
        raise ValueError(
            f"rate {rate}, first {first}, count {count}: only the rate may be a fraction, none negative"
        )
    n = np.arange(first, first + count, dtype=np.int64)
    place = n % TOTAL
    kind = np.where(place < PERSONS, PERSON, np.where(place < PERSONS + AUCTIONS, AUCTION, BID))
    structs = [
        _spread(_persons(Draws(seed, n[kind == PERSON]), n[kind == PERSON]), PERSON_FIELDS, kind == PERSON),
        _spread(
            _auctions(Draws(seed, n[kind == AUCTION]), n[kind == AUCTION], rate, shape),
            AUCTION_FIELDS,
            kind == AUCTION,
        ),
        _spread(_bids(Draws(seed, n[kind == BID]), n[kind == BID], shape), BID_FIELDS, kind == BID),
    ]
    return pa.table([pa.array(kind, pa.int32()), _times(time_ms(n, rate)), *structs], schema=SCHEMA)


def time_ms(n: Longs, rate: float) -> Longs:
    """When events are scheduled, in milliseconds since 1970."""
    return BASE_MS + np.floor(n * (1000.0 / rate)).astype(np.int64)


def write(
    directory: Path | str,
    rate: float,
    seconds: float,
    seed: int = 0,
    epoch_seconds: float = 1.0,
    shape: Shape = Shape(),
) -> list[Path]:
    """Writes a stream, a file for each epoch, and returns the files in order.

    A file appears at once and whole. Its modification time is when its first event is scheduled, since
    Spark's file source reads files in the order of these times; links and renames keep them.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    epochs = round(seconds / epoch_seconds)
    bounds = [round(epoch * epoch_seconds * rate) for epoch in range(epochs + 1)]
    files = []
    for epoch, (first, end) in enumerate(itertools.pairwise(bounds)):
        hidden, file = directory / f".{epoch:06}.parquet", directory / f"{epoch:06}.parquet"
        # Dictionaries pay for texts only.
        texts = [
            f"{f.name}.{g.name}"
            for f in SCHEMA
            if pa.types.is_struct(f.type)
            for g in f.type
            if g.type == pa.string()
        ]
        pq.write_table(
            generate(seed, rate, first, end - first, shape), hidden, compression="lz4", use_dictionary=texts
        )
        scheduled = BASE.timestamp() + epoch * epoch_seconds
        os.utime(hidden, (scheduled, scheduled))
        hidden.replace(file)
        files.append(file)
    return files


def _persons(draws: Draws, n: Longs) -> dict[str, pa.Array | Longs]:
    return {
        "id": FIRST_PERSON_ID + _last_person(n),
        "name": draws.pick(NAMES),
        "email_address": draws.pick(EMAILS),
        "credit_card": draws.pick(CARDS),
        "city": draws.pick(pa.array(CITIES)),
        "state": draws.pick(pa.array(STATES)),
        "extra": draws.pick(PERSON_EXTRAS),
    }


def _auctions(draws: Draws, n: Longs, rate: float, shape: Shape) -> dict[str, pa.Array | Longs]:
    hot_seller = _last_person(n) // HOT_AMONG * HOT_AMONG
    seller = np.where(draws.below(shape.hot_sellers) > 0, hot_seller, _any_person(draws, n, shape))
    initial_bid = draws.prices()
    return {
        "id": FIRST_AUCTION_ID + _last_auction(n),
        "item_name": draws.pick(ITEMS),
        "description": draws.pick(DESCRIPTIONS),
        "initial_bid": initial_bid,
        "reserve": initial_bid + draws.prices(),
        "expires": _times(time_ms(n, rate) + 1 + draws.below(shape.longest_auction_ms(rate))),
        "seller": FIRST_PERSON_ID + seller,
        "category": FIRST_CATEGORY_ID + draws.below(CATEGORIES),
        "extra": draws.pick(AUCTION_EXTRAS),
    }


def _bids(draws: Draws, n: Longs, shape: Shape) -> dict[str, pa.Array | Longs]:
    last = _last_auction(n)
    oldest = np.maximum(last - shape.in_flight_auctions, 0)
    any_auction = oldest + draws.below(last - oldest + 1 + ID_LEAD)
    auction = np.where(draws.below(shape.hot_auctions) > 0, last // HOT_AMONG * HOT_AMONG, any_auction)
    # The second of a hundred, so that hot bidders are not hot sellers as well.
    hot_bidder = _last_person(n) // HOT_AMONG * HOT_AMONG + 1
    bidder = np.where(draws.below(shape.hot_bidders) > 0, hot_bidder, _any_person(draws, n, shape))
    return {
        "auction": FIRST_AUCTION_ID + auction,
        "bidder": FIRST_PERSON_ID + bidder,
        "price": draws.prices(),
        "extra": draws.pick(BID_EXTRAS),
    }


def _last_person(n: Longs) -> Longs:
    """The newest person at event n, counted from 0."""
    return n // TOTAL * PERSONS + np.minimum(n % TOTAL, PERSONS - 1)


def _last_auction(n: Longs) -> Longs:
    """The newest auction at event n, an auction or a bid, counted from 0."""
    return n // TOTAL * AUCTIONS + np.minimum(n % TOTAL - PERSONS, AUCTIONS - 1)


def _any_person(draws: Draws, n: Longs, shape: Shape) -> Longs:
    people = _last_person(n) + 1
    active = np.minimum(people, shape.active_people)
    return people - active + draws.below(active + ID_LEAD)


def _times(ms: Longs) -> pa.Array:
    return pa.array(ms).cast(TIME)


def _spread(
    columns: dict[str, pa.Array | Longs], fields: dict[str, pa.DataType], here: npt.NDArray[np.bool_]
) -> pa.Array:
    """A struct for each event, null where the event is of another kind."""
    rows = pa.array(np.cumsum(here) - 1, mask=~here)
    arrays = [pa.array(columns[name]).cast(kind).take(rows) for name, kind in fields.items()]
    return pa.StructArray.from_arrays(
        arrays, fields=[pa.field(k, t) for k, t in fields.items()], mask=pa.array(~here)
    )


def _texts(salt: int, count: int, shortest: int, longest: int) -> pa.Array:
    """Random words of lower-case letters."""
    random = np.random.default_rng(salt)
    letters = (
        random.integers(ord("a"), ord("z") + 1, size=count * longest, dtype=np.uint8).tobytes().decode("ascii")
    )
    lengths = random.integers(shortest, longest + 1, size=count)
    return pa.array([letters[i * longest : i * longest + int(length)] for i, length in enumerate(lengths)])


def _cards(salt: int, count: int) -> pa.Array:
    numbers = np.random.default_rng(salt).integers(0, 10_000, size=(count, 4))
    return pa.array([" ".join(f"{part:04}" for part in card) for card in numbers])


NAMES = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
EMAILS = pa.array([f"{text[:7]}@{text[7:]}.com" for text in _texts(1, 4096, 10, 12).to_pylist()])
CARDS = _cards(2, 4096)
ITEMS = _texts(3, 4096, 3, 19)
DESCRIPTIONS = _texts(4, 4096, 3, 99)
# Such that a person has about 200 bytes, an auction 500 and a bid 100.
PERSON_EXTRAS = _texts(5, 256, 100, 150)
AUCTION_EXTRAS = _texts(6, 256, 315, 470)
BID_EXTRAS = _texts(7, 4096, 55, 81)
