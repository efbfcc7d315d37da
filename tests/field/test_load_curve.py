"""An autoscaler that may ask for executors follows a load that rises and falls."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from cluster.commands import Driver
from cluster.standalone import Standalone
from devtools.servers.jars import BUILD

pytestmark = [pytest.mark.field, pytest.mark.timeout(3600)]

SCRIPT = Path(__file__).parent / "autoscaled.py"
#: Keys per epoch: one executor can handle FEW, but not MANY.
FEW, MANY = 100, 1000
#: The number of epochs before and after a step that count as near it.
NEAR = 2


def test_a_load_that_comes_and_goes_ends_with_as_many_executors_as_it_began_with(
    tmp_path, jvm_jar, record_property
):
    conf = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "1"}
    with Standalone(tmp_path / "cluster") as cluster:
        cluster.join()
        with Driver(tmp_path / "run", cluster.url, conf, script=SCRIPT) as query:
            query("await_executors", 1)
            assert query("autoscale", 3) == 1
            # There is room for another executor, but the autoscaler doesn't ask for it.
            cluster.join()
            cluster.join()
            query("load", FEW, 1, 1)
            decisions = query("load", MANY, 3, 3)
            assert any(d.startswith("ask for 3 executors") for d in decisions), decisions
            decisions = query("load", FEW, 1, 1)
            assert any(d.startswith("give executors back until 1 are left") for d in decisions), decisions
            report = query.assert_exact(1)
            assert len(report["switches"]) >= 2
            assert query("there") == 1
            curve = query("curve")
            query.end()
    # The durations of epochs depend on the machine, so they are reported and not checked.
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "load-curve.json").write_text(json.dumps({"epochs": curve, "decisions": decisions}, indent=1))
    record_property("told", f"Longest epoch near a step: {lateness(curve):.1f} medians")


def lateness(curve):
    """The most that an epoch near a step took, in medians of those with as many rows and the same routing.

    A partition that was opened has no bins before the step, so the number of partitions does not tell.
    """
    steps = [i for i, e in enumerate(curve) if e["bins_adopted"]]
    kinds = [(e["rows"], sum(s <= i for s in steps)) for i, e in enumerate(curve)]

    def share(i):
        return curve[i]["seconds"] / median(
            e["seconds"] for e, k in zip(curve, kinds, strict=True) if k == kinds[i]
        )

    return max(share(i) for i in range(len(curve)) if any(abs(i - s) <= NEAR for s in steps))
