"""A fork has what says which column families its changelogs have."""

import re

import pytest

from binshift import AllAtOnce, savepoints
from binshift.session import PROVIDER
from harness import StreamRun, end_maintenance, until
from local.migrations import finish
from local.queries import QUERIES
from local.settings import IDS, JOIN_3, MIN_DELTAS, new

#: A store makes a snapshot of each fifth version, partition 1 four versions later than partition 0.
EVERY = 5


def snapshots(run: StreamRun, partition: int) -> set[int]:
    """The versions of its snapshots, once all that were made are uploaded."""
    end_maintenance(run.spark)
    names = [f.name for f in (run.checkpoint / f"state/0/{partition}").glob("*.zip")]
    return {int(m[1]) for n in names if (m := re.match(r"(\d+)", n))}


@pytest.mark.parametrize("ids", [{}, IDS], ids=["format-1", "format-2"])
def test_bins_that_were_elsewhere_between_two_snapshots_can_be_forked(stream, ids):
    query = QUERIES["join-inner"]
    conf = {**JOIN_3, **ids, MIN_DELTAS: str(EVERY), "spark.sql.shuffle.partitions": "2"}
    conf |= {"spark.sql.streaming.stateStore.maintenanceInterval": "200ms"}
    run = new(stream, "join-inner", PROVIDER, conf).start()
    run.run(*range(EVERY + 1))
    epoch = EVERY + 1
    assert until(lambda: any((run.checkpoint / "state/0/0").glob("*.zip")))
    made = max(snapshots(run, 0))
    due = made + 2 * EVERY
    controller = run.attach()
    home = list(controller.routing().assignment)
    # One bin stays, so that both partitions do.
    stays = home.index(1)
    away = [owner if b == stays else 0 for b, owner in enumerate(home)]
    switched = []
    for target, before in ((away, due - 5), (home, due - 2)):
        while epoch < before:
            run.run(epoch)
            epoch += 1
        epoch = finish(run, controller.rescale(target, strategy=AllAtOnce(), prepare=False), epoch)
        switched.append(controller.routing().epoch)
    states = {}
    while epoch <= due + 1:
        savepoints.create(run.checkpoint, f"at-{epoch - 1}")
        states[epoch - 1] = run.states(query.state)
        run.run(epoch)
        epoch += 1
    run.stop()
    for at, state in states.items():
        fork = stream(run.build, f"fork-{at}", mode=run.mode, conf=run.conf)
        fork.input = run.input
        savepoints.fork(run.checkpoint, fork.checkpoint, savepoint=f"at-{at}")
        assert fork.states(query.state) == state
        fork.start()
        fork.query.processAllAvailable()
        assert fork.outputs == {e: output for e, output in run.outputs.items() if e > at}
        fork.stop()
