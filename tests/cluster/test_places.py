"""Partitions run on named executors, not on drained ones, and on executors that have just joined."""

import json
from collections import Counter

import pytest


@pytest.mark.long
def test_partitions_move_between_executors_as_a_whole(drive, check, tmp_path):
    finished = drive(script="places.py")
    assert finished.returncode == 0, finished.stderr[-4000:]
    report = json.loads((tmp_path / "run/report.json").read_text())
    first, second, _ = report["executors"]
    assert all(first in report["placed"][p] for p in (2, 3))
    # No partition is left on the executor when the drain is over, nor comes back though the others are busy.
    assert report["misplaced"] >= 2
    assert not any(first in on for on in report["drained"] + report["still_drained"])
    # The executor that was drained runs nothing, like one that has just joined, and gets its share: no more.
    shares = Counter(on[0] for on in report["balanced"])
    assert sorted(shares.values()) == [1, 1, 2]
    assert shares.keys() == set(report["executors"])
    assert not any(second in on for on in report["after_death"])
    # Crash and replace does not add partitions.
    assert sorted(Counter(on[0] for on in report["replaced"]).values()) == [1, 1, 2]
    assert {on[0] for on in report["replaced"]} == set(report["executors_then"])
    assert report["ran_on"] == sorted(report["executors_then"])
    assert not any(report["decommissioned"] in on for on in report["after_decommission"])
    # With a prepared move, an executor has files before the partition comes.
    assert report["fetched_ahead"] >= 1
    # Only the places changed: no row was copied, and no bin changed its partition.
    assert (report["copied"], len(report["history"])) == (0, 1)
    check(partitions=4, last=finished)
