"""A fork and its source go on for a long time, each with rescales of its own, and never notice each other."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

import binshift
from binshift import AllAtOnce, Batched, OnDemand, Strategy, savepoints
from binshift.inspect.tools.fsck import Severity, fsck
from binshift.session import PROVIDER
from harness import STOCK, StreamRun, end_maintenance, until
from local.inspected import differences
from local.settings import EAGER, IDS, STORE, new

#: Old versions are deleted as soon as they may be, and often.
CONF = EAGER | {STORE + "maintenanceInterval": "300ms"}
BEFORE, FORKED = 6, 50


def change(run: StreamRun, rng: random.Random) -> bool:
    """Begins a rescale unless one is under way."""
    controller = run.attach()
    if controller.migration() is not None:
        return False
    to = rng.choice([n for n in range(1, 6) if n != controller.routing().partitions])
    strategies = (AllAtOnce(), Batched(rng.randint(10, 30)), OnDemand())
    strategy: Strategy = rng.choice(strategies)
    controller.rescale(to, strategy=strategy, prepare=isinstance(strategy, OnDemand) or rng.random() < 0.5)
    return True


def files_of_versions(checkpoint: Path) -> set[Path]:
    found = (f for f in checkpoint.glob("state/*/*/**/*") if f.suffix in (".zip", ".changelog"))
    return {f.relative_to(checkpoint) for f in found}


def has_none_of(checkpoint: Path, files: set[Path]) -> bool:
    return not files & files_of_versions(checkpoint)


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
@pytest.mark.parametrize("name", ["count", pytest.param("join-full", marks=pytest.mark.matrix)])
def test_a_fork_and_its_source_are_exact_for_fifty_epochs(stream, name, conf):
    rng = random.Random(name)
    run = new(stream, name, PROVIDER, conf | CONF).start()
    run.run(*range(3), n=12)
    # It is forked in the middle of a migration.
    run.attach().rescale(4, strategy=Batched(20), prepare=False)
    run.run(*range(3, BEFORE), n=12)
    fork = new(stream, name, PROVIDER, conf | CONF, "fork")
    fork.input = run.input
    linked = savepoints.fork(run.checkpoint, fork.checkpoint)
    shared = files_of_versions(fork.checkpoint)
    assert linked.linked > 0
    fork.start()
    rescales = dict.fromkeys((run, fork), 0)
    for epoch in range(BEFORE, BEFORE + FORKED):
        for one in (run, fork):
            rescales[one] += change(one, rng)
        run.run(epoch, n=12)
        fork.query.processAllAvailable()
    assert min(rescales.values()) > 4
    assert run.attach().routing() != fork.attach().routing()
    for one in (run, fork):
        assert until(partial(has_none_of, one.checkpoint, shared))
    oracle = new(stream, name, STOCK, {}, "oracle")
    oracle.input = run.input
    oracle.start()
    oracle.query.processAllAvailable()
    for one in (run, fork, oracle):
        one.stop()
    end_maintenance(run.spark)
    assert run.outputs == oracle.outputs
    assert fork.outputs == {e: out for e, out in oracle.outputs.items() if e >= BEFORE}
    for one in (run, fork):
        assert differences(one.checkpoint, oracle.checkpoint) == 0
        with binshift.inspect.open(one.checkpoint) as opened:
            assert [f for f in fsck(opened) if f.severity is Severity.DAMAGE] == []
