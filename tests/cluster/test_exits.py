"""A program that ends while stores compact leaves no JVM behind, and no directory."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cluster.ending import OF_EXECUTORS
from cluster.exits import CLUSTER, LOCAL, WAYS, Exit, end_program
from mutants.run import PlantedFault, plant

TESTS = Path(__file__).resolve().parents[1]
#: Seeds of a scale-in without copies, all at once and on demand, of which two and three epochs pass.
SCALE_INS = (61, 98)


def all_clean(exits: list[Exit]) -> None:
    assert [e for e in exits if not e.is_clean] == []


def test_a_program_that_ends_while_its_stores_compact_leaves_nothing(jvm_jar: Any, tmp_path: Path) -> None:
    # Two runs are enough: without binshift's precautions, most programs of this kind never end.
    # In the second, a database compacts as well that binshift can't find.
    cases = [("stop", SCALE_INS[0], LOCAL), ("leave", SCALE_INS[1], LOCAL, "--busy=3")]
    with ThreadPoolExecutor(2) as two:
        all_clean(list(two.map(lambda case: end_program(tmp_path / case[0], *case), cases)))


@pytest.mark.long
@pytest.mark.parametrize("how", WAYS[LOCAL])
def test_programs_that_end_at_random_instants_leave_nothing(jvm_jar: Any, tmp_path: Path, how: str) -> None:
    all_clean([end_program(tmp_path / str(seed), how, seed) for seed in range(1, 3)])


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill", *OF_EXECUTORS])
def test_executors_that_end_at_random_instants_are_gone(jvm_jar: Any, tmp_path: Path, how: str) -> None:
    all_clean([end_program(tmp_path / str(seed), how, seed, CLUSTER) for seed in range(1, 3)])


@pytest.mark.long
def test_a_program_without_the_shutdown_hook_is_found(
    jvm_jar: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, why = "statestore/storage/OpenDatabases.scala", "nothing ends RocksDB's background work"
    plant(PlantedFault("no-hook", file, "  hook()\n", "\n", why), tmp_path / "fault")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "fault/python"), str(TESTS)]))
    exits = [end_program(tmp_path / str(seed), "stop", seed) for seed in SCALE_INS]
    # They never end, or crash.
    assert [e for e in exits if not e.is_clean] != []
