"""What requests to S3 cost, and how many a query makes with many partitions if it was counted with few."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

__all__ = ["KINDS", "Counts", "Line", "Request", "by_kind", "dollars", "extra", "per_hour"]

#: Amazon S3 Standard, us-east-1, in November 2026: dollars for a thousand requests.
_PRICES = {
    "PUT": 0.005,
    "COPY": 0.005,
    "POST": 0.005,
    "LIST": 0.005,
    "GET": 0.0004,
    "HEAD": 0.0004,
    "DELETE": 0,
}
KINDS = tuple(_PRICES)

Counts = Mapping[str, float]


@dataclass(frozen=True)
class Request:
    """A request to the store.

    Attributes
    ----------
    checkpoint : str
        The first folder in the bucket; empty if it is about several files.
    kind : str
        One of `KINDS`. A GET with a prefix is a LIST, and a PUT with a source a COPY.
    about : str
        The part of the checkpoint, such as `offsets` or `state/N.changelog`.
    """

    checkpoint: str
    kind: str
    about: str

    @classmethod
    def of(cls, method: str, path: str, query: str = "", *, has_source: bool = False) -> Request:
        """Reads a request to a store that has the bucket in its path."""
        asked = parse_qs(query, keep_blank_values=True)
        if method == "GET" and ("list-type" in asked or "prefix" in asked):
            kind, path = "LIST", "/".join([path, *asked.get("prefix", [])])
        else:
            kind = "COPY" if has_source else method
        _, _, file = unquote(path).strip("/").partition("/")
        checkpoint, _, inside = file.partition("/")
        return cls(checkpoint, kind, _part(inside))


def _part(inside: str) -> str:
    """The part of a checkpoint that a file is in."""
    folder, _, rest = inside.partition("/")
    if folder == "state":
        for fixed in ("SSTs", "logs", "_metadata"):
            if fixed in rest:
                return f"state/{fixed}"
        file = re.search(r"/\.?\d+(?:_[^.]*)?\.(changelog|zip)(\.crc)?", rest)
        return f"state/N.{file[1]}{file[2] or ''}" if file else "state"
    if folder == "binshift":
        name = re.sub(r"^\.(.*)\.[0-9a-f-]{36}\.tmp$", r"\1", rest.partition("/")[0])
        return f"{folder}/{name}".rstrip("/")
    return folder


@dataclass(frozen=True)
class Line:
    """Requests that grow with the number of partitions: a fixed part, and one for each partition."""

    fixed: Counts
    each: Counts

    @classmethod
    def through(cls, few: tuple[int, Counts], many: tuple[int, Counts]) -> Line:
        """The line through the requests of two numbers of partitions."""
        (m, less), (n, more) = few, many
        each = {k: (more.get(k, 0) - less.get(k, 0)) / (n - m) for k in KINDS}
        return cls({k: less.get(k, 0) - m * each[k] for k in KINDS}, each)

    def at(self, partitions: int) -> dict[str, float]:
        """The requests with so many partitions."""
        return {k: self.fixed[k] + partitions * self.each[k] for k in KINDS}


def by_kind(requests: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """The requests of each kind, of those by kind and what they are about."""
    return {k: sum(n for (kind, _), n in requests.items() if kind == k) for k in KINDS}


def per_hour(epoch: Counts, seconds: float, *by_clock: Counts) -> dict[str, float]:
    """The requests of an hour with epochs of some `seconds`, and those that are made by the clock."""
    return {k: epoch[k] * 3600 / seconds + sum(c.get(k, 0) for c in by_clock) for k in KINDS}


def extra(requests: Counts, epoch: Line, partitions: Iterable[int]) -> dict[str, float]:
    """The requests that idle epochs don't make. Each epoch had so many partitions."""
    idle = [epoch.at(n) for n in partitions]
    return {k: requests.get(k, 0) - sum(i[k] for i in idle) for k in KINDS}


def dollars(requests: Counts) -> float:
    """The price of some requests."""
    return sum(_PRICES[k] * n / 1000 for k, n in requests.items())
