"""Fixtures: checkpoints and runs that several tests use, and checks that nothing is left after a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import until


@pytest.fixture(scope="session")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Stopped runs by the name of their case; each is made when it is first needed."""
    from local.inspected import CASES, MATRIX, make

    runs: dict[str, Any] = {}

    def run(name: str) -> Any:
        if name not in runs:
            runs[name] = make(spark, tmp_path_factory.mktemp(name), (CASES | MATRIX)[name])
        return runs[name]

    return run


@pytest.fixture
def history(stream: Any) -> Callable[..., Any]:
    """Creates runs of a named query whose rows are fetched on demand."""
    from local.migrations import NEVER, SHIP
    from local.rows_on_demand import ROWS, History, polling

    def make(name: str = "count", **conf: str) -> Any:
        query = ROWS[name]
        conf = {SHIP + "timeout": NEVER, **polling(query), **conf}
        return History(stream(query.build, mode=query.mode, conf=conf).start(), query)

    return make


@pytest.fixture
def nothing_left(spark: Any) -> Iterator[None]:
    """Checks that nothing that was staged outlives its query, however the migration ends."""
    # An executor that another test killed leaves its directories to the cluster that ran it.
    before = set(staged_dirs())
    yield
    assert until(lambda: before.issuperset(staged_dirs())), staged_dirs()
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    assert until(lambda: blocks.shipments() == 0)
    assert until(lambda: blocks.stagedBytes() == 0)
    # The driver's register of blocks, which outlives the order, has to be empty as well.
    assert until(lambda: blocks.known() == 0)


def staged_dirs() -> list[Path]:
    scratch = Path(os.environ["BINSHIFT_TESTS_TMP"])
    return [*scratch.glob("spark-*/binshift-staged-*"), *scratch.glob("spark-*/binshift-export-*")]


@pytest.fixture
def counting(stream: Callable[..., Any]) -> tuple[Any, Any]:
    """A query without a watermark, so that each input file is one epoch, and a run of it."""
    from local.migrations import begun

    return begun(stream, "count")


@pytest.fixture
def standby(spark: Any) -> Iterator[Callable[..., Any]]:
    """Keeps the files of a run's stores, and deletes them at the end."""
    helper = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.shipping.TestStandby
    begun: list[Any] = []

    def begin(run: Any, stores: Sequence[str], max_bytes: int = 1 << 30) -> Any:
        roots = spark._sc._gateway.new_array(spark._jvm.String, len(stores))
        for i, store in enumerate(stores):
            roots[i] = f"file:{run.checkpoint.absolute()}/state/{store}"
        begun.append(helper.begin(roots, max_bytes))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()
    assert helper.bytes() == 0
    assert not files_of_standbys()


def files_of_standbys(ending: str = "sst") -> list[Path]:
    return list(Path(os.environ["BINSHIFT_TESTS_TMP"]).glob(f"spark-*/binshift-standby*/*.{ending}"))
