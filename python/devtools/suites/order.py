"""The order in which suites run: those that are most demanding for a provider come first."""

from __future__ import annotations

__all__ = ["SELECTION", "by_weight"]

#: At least one suite of each kind of operator, and of the settings that change its state.
SELECTION = [
    "streaming.RocksDBStateStoreStreamingAggregationSuite",
    "streaming.RocksDBStateStoreStreamingDeduplicationSuite",
    "streaming.StreamingDeduplicationWithinWatermarkSuite",
    "streaming.StreamingSessionWindowSuite",
    "streaming.StreamingInnerJoinWithoutVCFSuite",
    "streaming.StreamingInnerJoinV4Suite",
    "streaming.StreamingOuterJoinWithVCFSuite",
    "streaming.StreamingOuterJoinV4Suite",
    "streaming.StreamingFullOuterJoinWithoutVCFSuite",
    "streaming.StreamingLeftSemiJoinV4Suite",
    "streaming.RocksDBStateStoreFlatMapGroupsWithStateSuite",
    "streaming.FlatMapGroupsWithStateWithInitialStateSuite",
    "streaming.TransformWithStateUnsafeRowSuite",
    "streaming.TransformWithStateAvroSuite",
    "streaming.TransformWithStateChainingSuite",
    "streaming.TransformWithStateInitialStateSuite",
    "streaming.TransformWithListStateSuite",
    "streaming.TransformWithListStateTTLSuite",
    "streaming.TransformWithMapStateSuite",
    "streaming.TransformWithMapStateTTLSuite",
    "streaming.TransformWithValueStateTTLSuite",
    "streaming.MultiStatefulOperatorsSuite",
    "streaming.EventTimeWatermarkSuite",
    "execution.streaming.state.RocksDBStateStoreIntegrationSuite",
]

#: Parts of the names of suites that run early, in this order; suites without any of them come next.
_STATEFUL = (
    "RocksDBStateStore", "StateStore", "TransformWith", "Join", "RealTimeMode", "Aggregation", "Dedup",
    "Session", "FlatMapGroups", "StateDataSource", "Repartition", "RocksDB", ".state.", "Watermark", "State",
    "StreamSuite",
)  # fmt: skip
#: Parts of the names of suites that hardly touch a store, and run last.
_STATELESS = (
    ".sources.", ".continuous.", ".ui.", ".test.", "File", "Log", "Python", "Offset", "Sink", "Source",
    "Stress",
)  # fmt: skip


def by_weight(suites: list[str]) -> list[str]:
    """The suites, those of `SELECTION` first and sources and sinks last."""
    return sorted(suites, key=lambda suite: (_rank(suite), suite))


def _rank(suite: str) -> int:
    if suite in SELECTION:
        return -len(SELECTION) + SELECTION.index(suite)
    if any(word in suite for word in _STATELESS) and ".state." not in suite:
        return len(_STATEFUL) + 1
    return next((rank for rank, word in enumerate(_STATEFUL) if word in suite), len(_STATEFUL))
