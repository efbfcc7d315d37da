"""A standalone cluster with authentication and encryption; workers die, join and are decommissioned."""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.commands import Driver
from cluster.standalone import Standalone

#: Spark's authentication, and its encryption of connections and of local files.
PROTECTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": secrets.token_hex(16),
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}


@pytest.fixture
def standalone(tmp_path: Path, jvm_jar: Path) -> Iterator[Callable[..., Standalone]]:
    with contextlib.ExitStack() as clusters:
        yield lambda **settings: clusters.enter_context(Standalone(tmp_path / "cluster", settings))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    with contextlib.ExitStack() as drivers:

        def start(cluster: Standalone, **conf: str) -> Driver:
            own = {"spark.executor.memory": "512m", "spark.locality.wait": "1min", **conf}
            return drivers.enter_context(Driver(tmp_path / "run", cluster.url, own))

        yield start


@pytest.mark.long
def test_bins_are_shipped_where_all_is_authenticated_and_encrypted(standalone, driver):
    cluster = standalone(**{k: PROTECTED[k] for k in ("spark.authenticate", "spark.authenticate.secret")})
    for _ in range(3):
        cluster.join()
    query = driver(cluster, **PROTECTED)
    query("await_executors", 3)
    query("epochs", 2)
    listening = query("listening")
    query("rescale", 6, 24, True)
    query("finish")
    assert query("listening") == listening, "something listens that Spark did not open"
    report = query.assert_exact(6)
    others = {"Shipped": 0, "FromCheckpoint": 0, "Recopied": 0}
    assert report["paths"] == {"Prepared": sum(report["history"]), **others}
    query.end()


@pytest.mark.matrix
def test_a_worker_that_dies_and_one_that_joins_leave_exact_results(standalone, driver):
    cluster = standalone()
    workers = [cluster.join() for _ in range(3)]
    query = driver(cluster)
    query("await_executors", 3)
    query("epochs", 2)
    query("rescale", 6, 16, True)
    query("epochs", 2)
    cluster.kill(workers[0])
    query("epochs", 1)
    cluster.join()
    query("await_executors", 3)
    query("finish")
    query.assert_exact(6)
    query.end()


@pytest.mark.matrix
def test_partitions_leave_executors_that_are_decommissioned_by_themselves(standalone, driver):
    decommission = {"spark.decommission.enabled": "true"}
    cluster = standalone(**decommission)
    workers = [cluster.join(cores=2) for _ in range(4)]
    # With Spark's own decommissioning only, a task would wait a minute for an executor that is gone.
    query = driver(cluster, **decommission, **{"spark.sql.shuffle.partitions": "8"})
    query("await_executors", 4)
    query("epochs", 2)
    before = query("placement")
    # Two at once, while the query waits for data.
    for worker in workers[:2]:
        cluster.decommission(worker)
    after = query("left", 2)
    gone = set(before["executors"]) - set(after["executors"])
    moved = [p for p, on in enumerate(before["partitions"]) if gone & set(on)]
    assert len(gone) == 2
    assert moved
    query("evacuated", len(moved))
    query("epochs", 1)
    now = query("placement")["partitions"]
    assert [on for p, on in enumerate(now) if p not in moved] == [
        on for p, on in enumerate(before["partitions"]) if p not in moved
    ]
    shares, had = (Counter(on[0] for on in where) for where in (now, before["partitions"]))
    assert shares.keys() == set(after["executors"])
    gaps = [abs(n[after["executors"][0]] - n[after["executors"][1]]) for n in (had, shares)]
    assert gaps[1] <= max(1, gaps[0] - len(moved))
    # The last two: until another worker joins, no executor can take the partitions.
    for worker in workers[2:]:
        cluster.decommission(worker)
    query("left", 0)
    cluster.join(cores=2)
    query("await_executors", 1)
    query("epochs", 2)
    query.assert_exact(8)
    query.end()


@pytest.mark.matrix
def test_a_migration_goes_on_when_an_executor_is_decommissioned_in_the_middle_of_it(standalone, driver):
    decommission = {"spark.decommission.enabled": "true"}
    cluster = standalone(**decommission)
    workers = [cluster.join() for _ in range(3)]
    query = driver(cluster, **decommission)
    query("await_executors", 3)
    query("epochs", 2)
    query("rescale", 6, 8, True)
    query("epochs", 3)
    cluster.decommission(workers[0])
    query("left", 2)
    query("finish")
    report = query.assert_exact(6)
    assert sum(report["history"]) > 0
    assert all(set(on) <= set(query("executors")) for on in query("placement")["partitions"])
    query.end()


@pytest.mark.matrix
def test_a_worker_that_is_decommissioned_leaves_exact_results(standalone, driver):
    cluster = standalone(**{"spark.decommission.enabled": "true"})
    workers = [cluster.join() for _ in range(3)]
    query = driver(cluster, **{"spark.decommission.enabled": "true"})
    query("await_executors", 3)
    query("epochs", 2)
    query("rescale", 6, 16, True)
    query("epochs", 2)
    cluster.decommission(workers[0])
    query("await_executors", 2)
    query("finish")
    report = query.assert_exact(6)
    assert sum(report["history"]) > 0
    query.end()


@pytest.mark.matrix
def test_an_autoscaler_asks_for_executors_and_gives_them_back(standalone, driver):
    cluster = standalone()
    cluster.join()
    query = driver(cluster, **{"spark.sql.shuffle.partitions": "1"})
    query("await_executors", 1)
    query("epochs", 2)
    # The number of executors is fixed: two workers with room join, and no executor starts on them.
    query("scale", 1000.0, 1, 1)
    cluster.join()
    cluster.join()
    query("epochs", 2)
    assert len(query("await_executors", 1)) == 1
    decided = query("scale", 0.001, 3, 3)
    # It asks once, or repeatedly if the executors come slowly.
    assert any(d.startswith("ask for 3 executors, for 3 partitions: busy") for d in decided)
    assert len(query("await_executors", 3)) == 3
    query("finish")
    assert {e for on in query("placement")["partitions"] for e in on} == set(query("executors"))
    decided = query("scale", 1000.0, 1, 1)
    assert any(d.startswith("give executors back until 1 are left") for d in decided)
    report = query.assert_exact(1)
    # To three partitions and back, with copies from the old owners.
    assert len(report["history"]) == 2
    query.end()


@pytest.mark.matrix
def test_an_executor_that_is_given_back_was_drained_before(standalone, driver):
    cluster = standalone()
    for _ in range(2):
        cluster.join(cores=2)
    query = driver(cluster, **{"spark.sql.shuffle.partitions": "2"})
    query("await_executors", 2)
    query("epochs", 2)
    assert len({e for on in query("placement")["partitions"] for e in on}) == 2
    # Two partitions are within the bounds, and one executor has the cores for them.
    decided = query("scale", 1000.0, 1, 1)
    assert any("until 1 are left: 1 are enough for 2 partitions" in d for d in decided)
    query.assert_exact(1)
    query.end()
