"""How long the windows of the queries are."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Windows:
    """Lengths of time in milliseconds of event time; the defaults are those of the paper and of NEXMark.

    Parameters
    ----------
    delay_ms : int
        How far watermarks stay behind the newest event. At least 1, so that an event which is as old as
        the newest one of the epoch before is no different from later ones.
    auction_ms : int
        Queries 4 and 6: the longest time that an auction is open, `Shape.longest_auction_ms` of the stream.
        The default holds for NEXMark's own shape at 10,000 events per second.
    average_ms : int
        Query 4: auctions that were opened in so long a time make one average.
    last_prices : int
        Query 6: selling prices that make an average; a number.
    hot_ms, hot_slide_ms : int
        Query 5: length and distance of its windows.
    highest_ms, highest_slide_ms : int
        Query 7: length and distance of its windows.
    new_user_ms : int
        Query 8: how long a person is new.
    session_gap_ms : int
        Query 11: silence that ends a session.
    count_ms : int
        Query 12: length of its windows.
    """

    delay_ms: int = 100
    auction_ms: int = 334
    average_ms: int = 1_000
    last_prices: int = 10
    hot_ms: int = 60_000
    hot_slide_ms: int = 1_000
    highest_ms: int = 60_000
    highest_slide_ms: int = 10_000
    new_user_ms: int = 12 * 3_600_000
    session_gap_ms: int = 10_000
    count_ms: int = 10_000

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}; it has to be at least 1")
        for length, slide in ((self.hot_ms, self.hot_slide_ms), (self.highest_ms, self.highest_slide_ms)):
            if slide > length or length % slide:
                raise ValueError(
                    f"a window of {length} ms cannot slide by {slide} ms: it needs a whole number of slides"
                )


PAPER = Windows()
#: For a stream of about a minute: the windows of queries 5, 7, 8, 11 and 12 close many times.
MINUTE = Windows(
    hot_ms=10_000,
    highest_ms=10_000,
    highest_slide_ms=2_000,
    new_user_ms=20_000,
    session_gap_ms=2_000,
    count_ms=5_000,
)
