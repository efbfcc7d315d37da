"""Settings that change how state is stored, and the operators under them, for tests of whole checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from binshift.session import CHANGELOG_KEY, PROVIDER_KEY
from harness import StreamRun
from local.queries import QUERIES

STORE = "spark.sql.streaming.stateStore."
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
#: Only one epoch for each input file, which halves the time; other tests have epochs without data.
ONE_EPOCH = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
IDS = {STORE + "checkpointFormatVersion": "2"}
AVRO = {STORE + "encodingFormat": "avro"}
ROW_CHECKSUMS = {STORE + "rowChecksum.enabled": "true"}
CHECKSUMS = ROW_CHECKSUMS | {STORE + "rowChecksum.readVerificationRatio": "1"}
NO_CHANGELOG = {CHANGELOG_KEY: "false"}
MIN_DELTAS = STORE + "minDeltasForSnapshot"
#: Frequent snapshots, so that versions are read from snapshots alone and from snapshots with changelogs.
SNAPSHOTS = {MIN_DELTAS: "2"}
#: Old versions are deleted as soon as they may be.
EAGER = {
    **SNAPSHOTS,
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0.0",
}
JOIN_3 = {"spark.sql.streaming.join.stateFormatVersion": "3"}
JOIN_4 = {"spark.sql.streaming.join.stateFormatVersion": "4"}
#: Spark 4.2 has this format for its own tests only.
NEEDS_JOIN_4 = pytest.mark.needs_spark("4.3", reason="state format 4 of joins is not finished before")
NEEDS_CHECKSUMS = pytest.mark.needs_spark("4.2", reason="rows have no checksums before")

_DEFAULT = {"count": {}, "tws-jvm": IDS}


def _rarer(name: str, conf: dict[str, str]) -> Any:
    return pytest.param(name, conf, marks=[pytest.mark.matrix, *needs(conf)])


def needs(conf: dict[str, str]) -> list[pytest.MarkDecorator]:
    """Marks of tests that not every Spark can run."""
    return [NEEDS_JOIN_4] if conf.items() >= JOIN_4.items() else []


#: Queries and settings of checkpoints that change from one provider to another.
OPERATORS = [
    *_DEFAULT.items(),
    _rarer("join-full", JOIN_4 | IDS | CHECKSUMS),
    _rarer("join-semi", JOIN_3),
    _rarer("tws-jvm", AVRO),
    _rarer("count", NO_CHANGELOG),
    _rarer("session-fixed", CHECKSUMS),
    *(_rarer(name, {}) for name in QUERIES if name not in _DEFAULT),
]
#: A few more, for tests that don't need all of them.
MORE_JOINS = [_rarer("join-full", JOIN_4), _rarer("join-full", IDS)]


def new(
    stream: Callable[..., StreamRun], name: str, provider: str, conf: dict[str, str], directory: str = "run"
) -> StreamRun:
    """A run of a query under a provider and settings, an epoch for each input file."""
    query = QUERIES[name]
    return stream(query.build, directory, mode=query.mode, provider=provider, conf=ONE_EPOCH | conf)


def start_with(run: StreamRun, provider: str) -> None:
    """Restarts the query in a session with `provider`."""
    run.stop()
    run.spark.conf.set(PROVIDER_KEY, provider)
    run.start()
