"""A program that ends while stores compact leaves no JVM behind, and no directory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cluster.ending import OF_EXECUTORS
from cluster.exits import CLUSTER, LOCAL, WAYS, Exit, end_program

#: Seeds of a scale-in without copies, all at once and on demand, of which two and three epochs pass.
SCALE_INS = (61, 98)


def all_clean(exits: list[Exit]) -> None:
    assert [e for e in exits if not e.is_clean] == []


def test_a_program_that_ends_while_its_stores_compact_leaves_nothing(jvm_jar: Any, tmp_path: Path) -> None:
    # Two runs are enough: without binshift's precautions, most programs of this kind never end.
    cases = list(zip(("stop", "leave"), SCALE_INS, strict=True))
    with ThreadPoolExecutor(2) as two:
        all_clean(list(two.map(lambda case: end_program(tmp_path / case[0], *case), cases)))


@pytest.mark.long
@pytest.mark.parametrize("how", WAYS[LOCAL])
def test_programs_that_end_at_random_instants_leave_nothing(jvm_jar: Any, tmp_path: Path, how: str) -> None:
    all_clean([end_program(tmp_path / str(seed), how, seed) for seed in range(1, 6)])


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill", *OF_EXECUTORS])
def test_executors_that_end_at_random_instants_are_gone(jvm_jar: Any, tmp_path: Path, how: str) -> None:
    all_clean([end_program(tmp_path / str(seed), how, seed, CLUSTER) for seed in range(1, 3)])
