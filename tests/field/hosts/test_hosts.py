"""Migrations on a cluster of hosts whose links are cut: outputs and state stay exact, and epochs go on.

`HOSTS_CUTS` is the number of cuts, and `HOSTS_SEED` what they are drawn from; by default, each run has a seed
of its own.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from cluster.commands import Driver
from devtools.results import commit
from field.hosts.cuts import KINDS, WORKERS, Cut, drawn, suffered
from field.hosts.hosted_cluster import Circumstances, Hosts, hosts
from field.hosts.oracle import assert_outputs, assert_state
from harness import STOCK
from traces.checker import check

CUTS = int(os.environ.get("HOSTS_CUTS", "22"))
SEED = os.environ.get("HOSTS_SEED") or str(int(time.time()))
#: Cuts that a query suffers before another one begins.
PER_SESSION = len(KINDS)
RESULTS = Path(__file__).with_name("results.jsonl")
ROOT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.field, pytest.mark.timeout(7200), pytest.mark.usefixtures("namespaces")]


def sessions() -> Iterator[Any]:
    """The cuts of each session; every kind comes before one comes again."""
    rng = random.Random(SEED)
    for number, begun in enumerate(range(0, CUTS, PER_SESSION)):
        kinds = rng.sample(list(KINDS), PER_SESSION)[: CUTS - begun]
        yield pytest.param(number, [drawn(rng, kind) for kind in kinds], id=str(number))


@pytest.mark.parametrize(("number", "cuts"), list(sessions()))
def test_links_are_cut_while_bins_move_and_nothing_is_lost_or_counted_twice(tmp_path, jvm_jar, number, cuts):
    circumstances = Circumstances.drawn(random.Random(f"{SEED} {number}"), number)
    told = {"seed": SEED, "session": number, "commit": commit(ROOT), **circumstances.told()}
    with hosts(tmp_path / "hosts", circumstances) as there:
        for name, conf in (("binshift", {}), ("spark", {"spark.binshift.tests.provider": STOCK})):
            there.network.limit("1gbit")
            with there.driver(name, jvm_jar, **conf) as query:
                lines = [told | line for line in outcomes(there, query, name, cuts)]
            if name == "binshift":
                check(there.trace(name))
                there.place.binshift("fsck", f"{there.place.root}/{name}")
            # Only now is it known that they are right.
            with RESULTS.open("a") as out:
                out.writelines(json.dumps(line) + "\n" for line in lines)


def outcomes(there: Hosts, query: Driver, name: str, cuts: list[Cut]) -> Iterator[dict[str, Any]]:
    """Has a query suffer cuts; what it gives is exact after each, and its state at the end."""
    migrates = name == "binshift"
    query("all_there", len(WORKERS))
    query("epochs_timed", 2)
    there.network.limit(there.circumstances.rate)
    idle: list[dict[str, Any]] = []
    for number, cut in enumerate(cuts):
        query("all_there", len(WORKERS))
        idle += query("epochs_timed", 1)
        if migrates:
            query("migrate", cut.way)
        healed = there.folder / f"healed-{name}-{number}"
        query.tell("go_on", str(healed), migrates)
        # The instants of the cut are drawn, and nobody is waited for.
        time.sleep(cut.after)
        began = time.time()
        with suffered(there.network, cut, there.disks()):
            time.sleep(cut.seconds)
        ended = time.time()
        healed.touch()
        epochs = query.answer()
        assert_outputs(query.root, there.circumstances.mode)
        # An epoch that was running during the cut or the first after it may have to repair something.
        hit = [e for e in epochs if e["began"] < ended and e["began"] + e["seconds"] > began]
        yield {
            "provider": name,
            "kind": cut.kind,
            "links": cut.links,
            "way": cut.way if migrates else "",
            "after": cut.after,
            "seconds": cut.seconds,
            "moving": any(e["moving"] for e in hit),
            "idle": round(median(e["seconds"] for e in idle), 2),
            "epochs": [round(e["seconds"], 2) for e in epochs],
            "longest": round(max(e["seconds"] for e in epochs), 2),
            "failures": [f for e in epochs for f in e["failures"]],
        }
    there.network.limit("1gbit")
    end = query("end_of", migrates)
    keys = assert_state(query.root, end["state"])
    if migrates:
        assert end["keys"] == keys
        assert end["metadata"] == [end["partitions"]]
        assert end["moved"] > 0
    query.end()
