"""An autoscaler that may ask the cluster for executors, as the load comes and goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.commands import Driver
from cluster.standalone import Standalone

pytestmark = [pytest.mark.field, pytest.mark.timeout(2400)]

SCRIPT = Path(__file__).parent / "autoscaled.py"


def test_a_load_that_comes_and_goes_ends_with_as_many_executors_as_it_began_with(tmp_path, jvm_jar):
    conf = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "1"}
    with Standalone(tmp_path / "cluster") as cluster:
        cluster.join()
        with Driver(tmp_path / "run", cluster.url, conf, script=SCRIPT) as query:
            query("await_executors", 1)
            assert query("scale", 3) == 1
            # There is room for more, which nobody has asked for.
            cluster.join()
            cluster.join()
            query("load", 10, 1, 1)
            decisions = query("load", 900, 3, 3)
            assert any(d.startswith("ask for 3 executors") for d in decisions)
            decisions = query("load", 10, 1, 1)
            assert any(d.startswith("give executors back but for 1") for d in decisions)
            query.assert_exact(1)
            query.end()
