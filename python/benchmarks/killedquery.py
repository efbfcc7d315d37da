"""Runs a query that moves bins, in a JVM of its own, and kills its driver.

Each of two partitions has a snapshot in the checkpoint. No snapshot was uploaded since, as if each upload took
longer than the driver lived. Some epochs later there are steps within `SPAN` epochs, each of which swaps two
bins. The last step is in the last of these epochs, so that the changelogs are the same for any number of steps.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError

import binshift
from binshift import AllAtOnce, Controller, Optimized
from binshift.session import PROVIDER
from devtools.counted import CountedQuery
from openloop.session import session

__all__ = ["PARTITIONS", "SPAN", "conf"]

PARTITIONS = 2
#: Epochs from the newest snapshots to the last step; a multiple of each number of steps.
SPAN = 40
#: Epochs from the snapshots to the first of these, so that a plan is ready in time; and from the last one to
#: the end.
BEFORE, AFTER = 20, 2


def conf() -> dict[str, str]:
    """Settings of the query, in this JVM and in the one that recovers."""
    return {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "10"}


def snapshots(root: Path) -> list[int]:
    """The newest uploaded version of each partition that has one."""
    stores = [root / "state/0" / str(partition) for partition in range(PARTITIONS)]
    made = [[int(file.stem) for file in store.glob("[0-9]*.zip")] for store in stores]
    return [max(versions) for versions in made if versions]


def exchange(query: CountedQuery, controller: Controller, steps: int, start: int) -> None:
    """Submits a plan that swaps two bins in each step, with the last step `SPAN` epochs after `start`."""
    owners = list(controller.routing().assignment)
    of = [[bin for bin, owner in enumerate(owners) if owner == p][:steps] for p in range(PARTITIONS)]
    for bin in of[0] + of[1]:
        owners[bin] = 1 - owners[bin]
    apart = SPAN // steps
    plan = controller.plan(owners, strategy=Optimized(gap=apart - 1))
    assert len(plan.steps) == steps, plan
    controller.submit(plan, start_epoch=start + apart, prepare=False)


def run(root: Path, steps: int, scratch: Path) -> None:
    """Never returns: the JVM is killed at the end."""
    # Maintenance would upload snapshots, too, and would reload stores that can't be uploaded.
    spark = session(scratch, memory="2g", **{"spark.sql.streaming.stateStore.maintenanceInterval": "1h"})
    query = CountedQuery(spark, root, PROVIDER, PARTITIONS, conf=conf())
    query.count()
    controller = binshift.attach(query.start())
    query.reach(3)
    # A store that has adopted bins uploads a snapshot soon.
    turned = [1 - owner for owner in controller.routing().assignment]
    controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False).wait(timeout=120)
    while len(snapshots(root)) < PARTITIONS:
        time.sleep(0.02)
    query.requests.refuse(".zip")
    start = max(snapshots(root)) + BEFORE
    query.requests.haltAt(start + SPAN + AFTER)
    if steps:
        exchange(query, controller, steps, start)
    query.reach(start + SPAN + AFTER + 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("steps", type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run(args.root, args.steps, Path(scratch))
        except (Py4JError, Py4JNetworkError, ConnectionError):
            committed = max(int(file.name) for file in (args.root / "commits").glob("[0-9]*"))
            return 0 if committed >= max(snapshots(args.root)) + BEFORE + SPAN + AFTER else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
