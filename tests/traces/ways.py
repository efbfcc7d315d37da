"""The ways in which state came in a life, and which of them were under way for one partition at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement

from traces.events import Event

WAYS = (
    "copied ahead",
    "copied again",
    "sent at the switch",
    "bins on demand",
    "rows on demand",
    "split",
    "replay along ways",
    "quick replay",
    "relocation",
    "evacuation",
    "standby",
    "takeover",
    "sweep",
)
#: The ways of an order's bins, by its delivery. Bins that don't come with whole files are sent.
_ORDERED = {
    "ahead": "copied ahead",
    "at-switch": "sent at the switch",
    "on-demand": "bins on demand",
    "whole-files": "sent at the switch",
}
#: A way of a partition, from one epoch to another.
Span = tuple[str, int, int, int]


def pairs(events: Iterable[Event]) -> set[tuple[str, str]]:
    """The pairs of ways that a life had under way for one partition at a time."""
    by_partition: dict[int, list[Span]] = defaultdict(list)
    for span in spans(events):
        by_partition[span[1]].append(span)
    return {
        _sorted(a[0], b[0])
        for of in by_partition.values()
        for i, a in enumerate(of)
        for b in of[i + 1 :]
        if a[0] != b[0] and a[2] <= b[3] and b[2] <= a[3]
    }


def _sorted(a: str, b: str) -> tuple[str, str]:
    return (a, b) if WAYS.index(a) <= WAYS.index(b) else (b, a)


def spans(events: Iterable[Event]) -> Iterator[Span]:
    """Ways without an end of their own last for the epoch in which they are told of."""
    epoch = 0
    #: Under way: by order, or by the process that has a standby.
    open_: dict[str, list[tuple[str, int, int]]] = {}
    leaving: dict[int, int] = {}
    for e in events:
        over: list[str] = []
        match e.name:
            case "epoch":
                epoch = e["epoch"]
            case "run claimed":
                over = [key for key in open_ if not key.startswith("standby")]
            case "order":
                open_[e["order"]] = [(way, p, e["epoch"]) for way, p in _ordered(e)]
            case "standby":
                open_.setdefault(_standby(e), [("standby", e.own.partition, epoch)])
            case "order closed" | "standby closed":
                over = [e["order"] if e.name == "order closed" else _standby(e)]
            case "evacuation":
                leaving |= dict.fromkeys(e["partitions"], epoch)
                yield from ((e.name, p, epoch, epoch + 1) for p in e["partitions"])
            case _ if e.store is not None:
                is_leaving = leaving.get(e.own.partition, -2) >= epoch - 1
                if (way := _way(e, is_leaving)) is not None:
                    first = e.get("version", epoch)
                    yield way, e.own.partition, first, max(first, epoch)
        for key in over:
            yield from ((way, p, first, max(first, epoch)) for way, p, first in open_.pop(key, []))
    for of in open_.values():
        yield from ((way, p, first, max(first, epoch)) for way, p, first in of)


def _standby(e: Event) -> str:
    return f"standby {e.process} {e.store}"


def _way(e: Event, is_leaving: bool) -> str | None:
    """The way of state that an event of a store is about, if it is about one."""
    match e.name:
        case "rows on demand" | "quick replay":
            return e.name
        case "swept":
            return "sweep"
        case "moves to":
            return "evacuation" if is_leaving else "relocation"
        case "rescued to" | "files here":
            return "standby"
    told = (
        ("copied again", e.name == "arrived" and e.get("again")),
        ("split", e.name == "arrived" and e.get("way") == "split"),
        ("replay along ways", e.name == "recovery" and "held" in e.values),
        ("takeover", e.name == "loaded" and e.get("takeover")),
    )
    return next((way for way, is_so in told if is_so), None)


def _ordered(e: Event) -> Iterator[tuple[str, int]]:
    splits = {int(target): source for target, source in e.get("splits", {}).items()}
    way = _ORDERED[e["delivery"]]
    for source, target, _ in e["moves"]:
        for partition in (source, target):
            yield ("split" if splits.get(target) == source else way), partition


def _ended(spans: Iterable[Iterable[Span]], epoch: int) -> Iterator[Span]:
    for of in spans:
        for way, partition, first, _ in of:
            yield way, partition, first, max(first, epoch)


def table(lives: Iterable[Iterable[str]]) -> str:
    """The table with the number of lives in which each pair was under way for one partition."""
    count = Counter(pair for life in lives for pair in life)
    lines = ["| | " + " | ".join(WAYS[1:]) + " |", "|" + "---|" * len(WAYS)]
    both = set(combinations_with_replacement(WAYS, 2))
    for i, a in enumerate(WAYS[:-1]):
        cells = [
            str(count[f"{a} + {b}"]) if j > i and (a, b) in both else "" for j, b in enumerate(WAYS) if j > 0
        ]
        lines.append(f"| {a} | {' | '.join(cells)} |")
    return "\n".join(lines)
