"""Savepoints and forks while bins still come on demand, to stores that were loaded from standbys' files."""

from __future__ import annotations

import pytest

from binshift import OnDemand, savepoints
from binshift.session import PROVIDER
from harness import end_maintenance
from local.inspected import differences
from local.migrations import SHIP, submit_shift
from local.settings import EAGER, IDS, OPERATORS, new

#: Nothing comes that is not asked for.
SETTINGS = EAGER | {SHIP + "maxBytesPerSecond": "1"}


@pytest.mark.parametrize(
    ("name", "conf"), [*OPERATORS, pytest.param("join-full", IDS, marks=pytest.mark.matrix)]
)
def test_a_fork_is_equal_to_its_source_at_that_epoch(stream, standby, name, conf):
    run = new(stream, name, PROVIDER, conf | SETTINGS).start()
    run.run(*range(4))
    run.stop()
    end_maintenance(run.spark)
    here = standby(run, stores_of(run))
    assert here.follow()
    run.start()
    submit_shift(run, OnDemand())
    awaited = []
    for epoch in (4, 5, 6):
        run.run(epoch, n=2)
        here.follow()
        metrics = [op.customMetrics for op in run.progress(epoch).stateOperators]
        awaited.append(sum(m["binshiftBinsAwaited"] for m in metrics))
        savepoints.create(run.checkpoint, f"at-{epoch}")
        savepoints.fork(run.checkpoint, run.root / f"fork-{epoch}", savepoint=f"at-{epoch}")
        assert differences(run.checkpoint, run.root / f"fork-{epoch}") == 0
    # Others ask for all of their bins, or take them at the switch.
    assert max(awaited) > 0 or name not in ("count", "join-semi")
    run.stop()
    run.start()
    run.run(*range(7, 14))
    run.stop()
    end_maintenance(run.spark)
    for epoch in (4, 5, 6):
        savepoints.fork(run.checkpoint, run.root / f"later-{epoch}", savepoint=f"at-{epoch}")
        assert differences(run.root / f"fork-{epoch}", run.root / f"later-{epoch}") == 0
    fork = new(stream, name, PROVIDER, conf | SETTINGS, "later-5")
    fork.input = run.input
    fork.start()
    fork.query.processAllAvailable()
    fork.stop()
    assert differences(run.checkpoint, fork.checkpoint) == 0


def stores_of(run):
    """The directories of all stores, as they are below `state`."""
    state = run.checkpoint / "state"
    return sorted({str(f.parent.relative_to(state)) for f in state.glob("*/**/*.zip")})
