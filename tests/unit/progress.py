"""Progress of a query as Spark publishes it, written by hand."""

from __future__ import annotations

from typing import Any

from binshift import EpochProgress

QUERY, RUN = "6e5b1a54-1c0f-4f0a-9d6f-0a2a3a4f5b6c", "11111111-2222-3333-4444-555555555555"


def operator(partitions: int = 2, **metrics: int) -> dict[str, Any]:
    return {
        "operatorName": "stateStoreSave",
        "numRowsTotal": 60,
        "numRowsUpdated": 40,
        "memoryUsedBytes": 4096,
        "numShufflePartitions": partitions,
        "customMetrics": {"rocksdbGetCount": 7, **metrics},
    }


def progress(
    epoch: int, duration_ms: int = 500, rows: int = 40, operators: Any = None, run: str = RUN, second: int = 0
) -> dict[str, Any]:
    return {
        "id": QUERY,
        "runId": run,
        "name": None,
        "timestamp": f"2026-01-01T00:{(epoch + second) // 60:02}:{(epoch + second) % 60:02}.250Z",
        "batchId": epoch,
        "batchDuration": duration_ms,
        "durationMs": {"addBatch": duration_ms - 100, "triggerExecution": duration_ms},
        "numInputRows": rows,
        "stateOperators": [operator()] if operators is None else operators,
    }


def idle(epoch: int) -> dict[str, Any]:
    """The progress that Spark publishes while there is no input."""
    return {**progress(epoch, 3, 0), "durationMs": {"latestOffset": 2, "triggerExecution": 3}}


def epoch(number: int, **kwargs: Any) -> EpochProgress:
    made = EpochProgress.of(progress(number, **kwargs))
    assert made is not None
    return made
