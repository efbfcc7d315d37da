"""A store commits nothing in a session where binshift isn't active, as it may have rows of other partitions."""

from pathlib import Path

import pytest


@pytest.mark.few
def test_a_store_of_a_session_without_binshift_commits_nothing(spark, counting):
    _, run = counting
    run.stop()
    before = files(run.checkpoint)
    session = run.spark
    told = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestUnrouted.commit(
        session._jsparkSession, str(run.checkpoint), 0, 2
    )
    assert "SESSION_WITHOUT_BINSHIFT" in told
    assert files(run.checkpoint) == before


def files(checkpoint: Path) -> set[str]:
    return {
        str(p.relative_to(checkpoint)) for p in checkpoint.rglob("*") if not p.name.endswith((".crc", ".tmp"))
    }
