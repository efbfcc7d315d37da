"""Estimates what a rescale, a drain and a loss of an executor cost, from what was measured.

The figures are those of docs/sizing.md, which says how they were measured, and how far off the estimates were.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BOUND", "BUSY", "Estimate", "Executors", "estimates"]

#: How fast an executor sends copies if cores are free, in bytes a second: the default of
#: `ship.maxBytesPerSecond`.
BOUND = 64 * 2**20
#: The same on an executor whose two cores are always busy.
BUSY = 5.7e6
#: How fast an executor of two cores takes in bins for which an epoch waits.
AT_ONCE = 90e6
#: Epochs until the first prepared step, besides the time for copying, and between two steps.
PREPARING, NEXT_STEP = 8.5, 6
#: Epochs until a step that isn't prepared.
UNPREPARED = 3
#: How much longer the first epoch is after a loss, in usual epochs, even if all files are there already.
REOPENING = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """Where the state is.

    Parameters
    ----------
    state : float
        The size of all rows of all executors together, in bytes, before compression.
    n : int
        How many executors there are, over which the state is spread evenly.
    network : float
        Bytes a second that an executor can send and receive.
    epoch_s : float
        How long an epoch takes, in seconds.
    """

    state: float
    n: int
    network: float
    epoch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one thing costs.

    Parameters
    ----------
    what : str
        What happens.
    moved : float
        Bytes that are read from an executor or from the checkpoint.
    free_s, busy_s : float
        Seconds until it is over, if the executors have free cores, and if all of their cores are busy.
    adds_s : float
        Seconds by which the longest epoch is longer than an idle query's longest one.
    """

    what: str
    moved: float
    free_s: float
    busy_s: float
    adds_s: float


def estimates(of: Executors, part: float = 0.5, steps: int = 2) -> list[Estimate]:
    """What a rescale costs that moves a part of the state in so many steps, and what else may happen.

    Whatever an executor has goes to a single other one if it is drained or lost, which is the worst case.

    Parameters
    ----------
    of : Executors
        Where the state is.
    part : float
        How much of the state moves, from 0 to 1. If partitions are doubled or halved, it is a half.
    steps : int
        Into how many steps the plan is cut.

    Returns
    -------
    list of Estimate
        A prepared rescale, one without copies, a drain, and a loss without and with a standby.
    """
    moved, own = of.state * part, of.state / of.n
    prepared = (PREPARING + NEXT_STEP * (steps - 1)) * of.epoch_s
    at_once = moved / of.n / min(of.network, AT_ONCE)
    # Only the checkpoint has the state of an executor that is gone, and one other executor gets it at worst.
    fetched = own / of.network

    def copied(each: float, epochs_s: float) -> tuple[float, float]:
        return epochs_s + each / min(of.network, BOUND), epochs_s + each / min(of.network, BUSY)

    def one(what: str, moved: float, times: tuple[float, float], adds_s: float = 0) -> Estimate:
        return Estimate(what=what, moved=moved, free_s=times[0], busy_s=times[1], adds_s=adds_s)

    unprepared, reopened = UNPREPARED * of.epoch_s + at_once, REOPENING * of.epoch_s
    lost = reopened + fetched
    return [
        one("rescale", moved, copied(moved / of.n, prepared)),
        one("rescale, not prepared", moved, (unprepared, unprepared), at_once),
        one("drain", own, copied(own, PREPARING * of.epoch_s)),
        one("loss of an executor", own, (of.epoch_s + lost,) * 2, lost),
        one("loss, with a standby", 0, (of.epoch_s + reopened,) * 2, reopened),
    ]
