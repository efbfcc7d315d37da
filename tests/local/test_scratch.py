"""Scratch databases, one for each pair of stores, share their memory."""

from __future__ import annotations

from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession

MB = 1 << 20


def test_scratch_databases_share_their_memory_and_give_it_back(spark: SparkSession, tmp_path: Path) -> None:
    scratch = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.shipping.TestScratch
    before = scratch.sharedBytes()
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(scratch.open(str(tmp_path / f"{i}")))) for i in range(3)]
        used = [before]
        for store in stores:
            assert store.change(2000) == 2000
            used.append(scratch.sharedBytes())
        # Each has written two megabytes, which count together.
        assert all(after - earlier > MB for earlier, after in pairwise(used))
    assert scratch.sharedBytes() <= before + MB
    assert not list(tmp_path.iterdir())
