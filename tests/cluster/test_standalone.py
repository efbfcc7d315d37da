"""A standalone cluster with authentication and encryption; workers die, join and are decommissioned."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.commands import Driver
from cluster.standalone import Standalone

#: All that Spark can protect: who talks to whom, what they say, and what they leave on disk.
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
            own = {"spark.executor.memory": "512m", **conf}
            return drivers.enter_context(Driver(tmp_path / "run", cluster.url, own))

        yield start


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
