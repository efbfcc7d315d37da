"""What is explored: small sizes in each run of the tests, and all by `make model`."""

from __future__ import annotations

from model.rules import Rules
from model.state import Budget, PerBin

SWAP = (PerBin((1, 0)),)
OUT_AND_BACK = (PerBin((0, 1)), PerBin((0, 0)))
ONE_PARTITION = PerBin((0, 0))
UNITED_AND_BACK = (PerBin((0, 0)), PerBin((0, 1)))

SMALL = {
    "format 2, a crash": Rules(budget=Budget(crashes=1, losses=1)),
    "format 1, a crash": Rules(format=1, budget=Budget(crashes=1, losses=1)),
    "format 2, two drivers": Rules(epochs=2, budget=Budget(others=1)),
    "format 1, two drivers": Rules(format=1, epochs=2, budget=Budget(others=1, snapshots=1)),
    "format 2, twins and snapshots": Rules(epochs=2, budget=Budget(starts=1, attempts=1, snapshots=2)),
    "format 2, wound back": Rules(
        retained=2, epochs=2, budget=Budget(crashes=1, snapshots=1, winds=1, plans=0)
    ),
    "format 1, wound back": Rules(
        format=1, retained=2, epochs=2, budget=Budget(crashes=1, snapshots=1, winds=1, plans=0)
    ),
    "out and back again": Rules(
        first=ONE_PARTITION, plans=(OUT_AND_BACK,), epochs=4, budget=Budget(starts=1, snapshots=1)
    ),
    "copies": Rules(epochs=4, budget=Budget(starts=1, losses=1, copies=1)),
    "real-time mode, two drivers": Rules(real_time=True, epochs=2, budget=Budget(others=1)),
    "an epoch for each run": Rules(epochs=5, stops=True, remembered=1, budget=Budget(starts=5)),
}

LARGE = {
    "format 2, two drivers, two epochs, snapshots": Rules(epochs=2, budget=Budget(others=1, snapshots=1)),
    "format 2, two drivers, three epochs": Rules(budget=Budget(others=1, snapshots=1)),
    "format 1, two drivers, three epochs": Rules(format=1, budget=Budget(others=1, snapshots=1)),
    "format 2, two drivers, executors lost, a crash": Rules(
        cleans=False, budget=Budget(starts=3, others=1, crashes=1, losses=1)
    ),
    "format 1, two drivers, executors lost, a crash": Rules(
        format=1, cleans=False, budget=Budget(starts=3, others=1, crashes=1, losses=1)
    ),
    "format 2, twins, snapshots, a crash": Rules(budget=Budget(attempts=1, snapshots=1, crashes=1)),
    "format 2, two versions retained, snapshots": Rules(
        retained=2, budget=Budget(starts=1, snapshots=3, losses=1)
    ),
    "format 1, wound back, two drivers": Rules(
        format=1,
        epochs=2,
        retained=2,
        budget=Budget(starts=3, others=1, crashes=1, winds=1, snapshots=1, plans=0),
    ),
    "format 2, wound back, two drivers": Rules(
        epochs=2, retained=2, budget=Budget(starts=3, others=1, crashes=1, winds=1, snapshots=1, plans=0)
    ),
    "format 2, wound back, a step": Rules(retained=2, budget=Budget(crashes=1, winds=1, snapshots=1)),
    "format 1, wound back, a step": Rules(format=1, retained=2, budget=Budget(crashes=1, winds=1, snapshots=1)),
    "a partition that leaves and comes back": Rules(
        plans=(UNITED_AND_BACK,), epochs=5, budget=Budget(starts=1, snapshots=2)
    ),
    "three bins, three partitions": Rules(
        first=PerBin((0, 0, 1)),
        partitions=3,
        plans=((PerBin((2, 2, 1)), PerBin((2, 2, 0))),),
        epochs=4,
        budget=Budget(starts=2, crashes=1, snapshots=1),
    ),
    "two drivers, two plans, cancels": Rules(
        epochs=4, cleans=False, plans=(SWAP, UNITED_AND_BACK[:1]), budget=Budget(others=1, plans=2, cancels=1)
    ),
    "real-time mode, two drivers, a crash": Rules(
        real_time=True, budget=Budget(starts=3, others=1, crashes=1, losses=1)
    ),
    "claims that are forgotten": Rules(epochs=3, remembered=1, stops=True, budget=Budget(starts=4, others=1)),
    "three drivers, one after the other": Rules(cleans=False, budget=Budget(starts=4, others=2, crashes=1)),
    "copies, two drivers": Rules(
        epochs=4, cleans=False, budget=Budget(others=1, losses=1, copies=1, snapshots=0)
    ),
}

LIVE = {
    "a crash": Rules(epochs=6, stops=True, cleans=False, budget=Budget(crashes=1)),
    "two drivers": Rules(epochs=4, stops=True, cleans=False, budget=Budget(starts=3, others=1)),
    "two plans": Rules(epochs=7, stops=True, cleans=False, budget=Budget(plans=2)),
}
"""Sizes for which it is asked whether each migration ends."""
