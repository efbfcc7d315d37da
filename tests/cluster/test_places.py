"""Where partitions run: on a named executor, not on one that is drained, and on one that has just joined."""

import json


def test_partitions_are_placed_an_executor_is_drained_and_gets_its_share_again(drive, check, tmp_path):
    finished = drive(script="places.py")
    assert finished.returncode == 0, finished.stderr[-4000:]
    report = json.loads((tmp_path / "run/report.json").read_text())
    first = report["executors"][0]
    assert all(first in report["placed"][p] for p in (2, 3))
    assert not any(first in executors for executors in report["drained"])
    # Partitions 2 and 3 and whatever else the executor ran have no bins any more; others hold all of them.
    assert not any(size for p, size in enumerate(report["sizes_drained"]) if first in report["placed"][p])
    assert sum(report["sizes_drained"]) == 64
    # The executor that was drained runs nothing, like one that has just joined, so new partitions go there.
    assert any(first in executors for executors in report["balanced"])
    assert max(report["sizes"]) - min(report["sizes"]) <= 1
    check(partitions=len(report["sizes"]), last=finished)
