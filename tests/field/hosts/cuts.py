"""Cuts: what happens to the hosts for some seconds, and is repaired."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from field.hosts.topology import Network

__all__ = ["DRIVER", "KINDS", "STORE", "WAYS", "WORKERS", "Cut", "drawn", "suffered"]

DRIVER, STORE, WORKERS = "driver", "store", ("worker-0", "worker-1", "worker-2")
#: How bins move meanwhile: copied ahead of steps; as they are touched, or, in complete mode, at the switch.
WAYS = ("prepared", "at once")
_BLOCK = 1 << 20
#: Longest cut. Spark takes an executor for lost after 8 s without a heartbeat (`cluster.TIMEOUTS`).
_SHORTEST_SECONDS, _LONGEST_SECONDS = 3.0, 12.0
#: Longest time between the order to migrate and the cut.
_LATEST_SECONDS = 4.0

Link = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A cut: which links, when, and for how long.

    Parameters
    ----------
    kind : str
        The row of the table.
    links : tuple
        The directions in which nothing arrives any more, as pairs of hosts.
    disk : str
        The host whose disk is full.
    way : str
        How bins move meanwhile.
    after, seconds : float
        When it begins after the order to migrate, and how long it lasts.
    """

    kind: str
    links: tuple[Link, ...] = ()
    disk: str = ""
    way: str
    after: float
    seconds: float


def _both(a: str, b: str) -> tuple[Link, ...]:
    return ((a, b), (b, a))


#: The directions of each kind of cut, for the executors' hosts in a random order.
KINDS: Mapping[str, Callable[[str, str], tuple[Link, ...]]] = {
    "executor and executor": _both,
    "executor to executor": lambda a, b: ((a, b),),
    "executor and driver": lambda a, _: _both(a, DRIVER),
    "executor to driver": lambda a, _: ((a, DRIVER),),
    "driver to executor": lambda a, _: ((DRIVER, a),),
    "executor and store": lambda a, _: _both(a, STORE),
    "executor to store": lambda a, _: ((a, STORE),),
    "store to executor": lambda a, _: ((STORE, a),),
    "driver and store": lambda *_: _both(DRIVER, STORE),
    "executor and all others": lambda a, _: tuple(
        link for other in (DRIVER, STORE, *WORKERS) if other != a for link in _both(a, other)
    ),
    "full disk of an executor": lambda *_: (),
}


def drawn(rng: random.Random, kind: str) -> Cut:
    """A cut of a kind."""
    first, second = rng.sample(WORKERS, 2)
    return Cut(
        kind=kind,
        links=KINDS[kind](first, second),
        disk=first if "disk" in kind else "",
        way=rng.choice(WAYS),
        after=round(rng.uniform(0, _LATEST_SECONDS), 1),
        seconds=round(rng.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS), 1),
    )


@contextlib.contextmanager
def suffered(network: Network, cut: Cut, disks: Mapping[str, Path]) -> Iterator[None]:
    """Cuts while the context lasts."""
    with contextlib.ExitStack() as repairs:
        for source, target in cut.links:
            network.cut(source, target)
            repairs.callback(network.heal, source, target)
        if cut.disk:
            filler = disks[cut.disk] / "filler"
            repairs.callback(filler.unlink)
            _fill(filler)
        yield


def _fill(file: Path) -> None:
    """Writes until the disk has no room."""
    with file.open("wb", buffering=0) as out:
        for size in (_BLOCK, 1 << 12):
            try:
                for _ in itertools.count():
                    out.write(os.urandom(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
