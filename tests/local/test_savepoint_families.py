"""A fork has what says which column families its changelogs have."""

import pytest

from binshift import AllAtOnce, savepoints
from binshift.session import PROVIDER
from harness import end_maintenance
from local.migrations import finish
from local.queries import QUERIES
from local.settings import IDS, JOIN_3, MIN_DELTAS, new

#: A store makes its snapshots in turns, one in so many versions.
EVERY = 5


@pytest.mark.parametrize("ids", [{}, IDS], ids=["format-1", "format-2"])
@pytest.mark.parametrize("visited", [0, 1])
def test_bins_that_were_elsewhere_for_a_few_epochs_can_be_forked_at_any_time(stream, visited, ids):
    query = QUERIES["join-inner"]
    conf = {**JOIN_3, **ids, MIN_DELTAS: str(EVERY), "spark.sql.shuffle.partitions": "2"}
    run = new(stream, "join-inner", PROVIDER, conf).start()
    run.run(*range(EVERY + 1))
    controller = run.attach()
    home = list(controller.routing().assignment)
    # One bin stays, so that both partitions do.
    stays = home.index(1 - visited)
    away = [owner if b == stays else visited for b, owner in enumerate(home)]
    epoch = EVERY + 1
    for target in (away, home):
        migration = controller.rescale(target, strategy=AllAtOnce(), prepare=False)
        epoch = finish(run, migration, epoch) + 1
        run.run(epoch - 1)
    saved = {}
    # Meanwhile, each of the partitions makes a snapshot, but not at the same version.
    for _ in range(EVERY):
        savepoints.create(run.checkpoint, f"at-{epoch - 1}")
        saved[f"at-{epoch - 1}"] = run.states(query.state)
        run.run(epoch)
        epoch += 1
    run.stop()
    end_maintenance(run.spark)
    for name, states in saved.items():
        fork = stream(run.build, f"fork-{name}", mode=run.mode, conf=run.conf)
        fork.input = run.input
        savepoints.fork(run.checkpoint, fork.checkpoint, savepoint=name)
        assert fork.states(query.state) == states
        fork.start()
        fork.query.processAllAvailable()
        later = {e: output for e, output in run.outputs.items() if e > int(name.removeprefix("at-"))}
        assert fork.outputs == later
        fork.stop()
