"""The table of epochs is made from the progress that Spark publishes."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from binshift import ConfigurationError, EpochLog, EpochProgress, epoch_table
from binshift.epoch_progress import distinct
from unit.progress import QUERY, RUN, epoch, idle, operator, progress


def test_an_epoch_is_summed_over_operators():
    operators = [
        operator(partitions=1),
        operator(partitions=6, binshiftBinsAdopted=3, binshiftAdoptMs=20),
        operator(partitions=6, binshiftBinsAdopted=4, binshiftBinsFromCheckpoint=1),
    ]
    made = EpochProgress.of(progress(7, duration_ms=900, operators=operators))
    assert made.partitions == 6
    assert (made.state_rows, made.state_rows_updated, made.state_memory_bytes) == (180, 120, 3 * 4096)
    assert made.metrics == {"bins_adopted": 7, "adopt_s": 0.02, "bins_from_checkpoint": 1}
    assert made.started_at == datetime(2026, 1, 1, 0, 0, 7, 250_000, UTC)
    assert (made.epoch, made.duration_s, made.input_rows, made.query_id, made.run_id) == (
        7,
        0.9,
        40,
        QUERY,
        RUN,
    )


def test_what_pyspark_makes_of_progress_is_read_as_its_json_is():
    data = progress(3, operators=[])
    data["sources"], data["sink"], data["observedMetrics"] = [], {"description": "", "numOutputRows": 1}, {}
    data["inputRowsPerSecond"] = data["processedRowsPerSecond"] = 1.0
    assert EpochProgress.of(StreamingQueryProgress.fromJson(data)) == EpochProgress.of(
        json.loads(json.dumps(data))
    )


def test_a_trigger_that_ran_nothing_is_no_epoch():
    assert EpochProgress.of(idle(4)) is None


def test_of_two_reports_about_an_epoch_the_later_counts():
    found = distinct([progress(1), progress(2, rows=1), idle(3), progress(2, rows=9)])
    assert [(e.epoch, e.input_rows) for e in found] == [(1, 40), (2, 9)]


def test_the_table_has_a_column_for_each_metric_also_for_those_of_a_later_version():
    table = epoch_table([epoch(1, operators=[operator(binshiftRowsAdopted=5, binshiftNovelty=2)]), epoch(2)])
    assert table.column("rows_adopted").to_pylist() == [5, 0]
    assert table.column("novelty").to_pylist() == [2, 0]
    assert table.column("epoch").to_pylist() == [1, 2]
    assert table.schema.field("started_at").type == pa.timestamp("ms", tz="UTC")


def test_a_table_without_epochs_has_the_same_columns():
    assert epoch_table([]).schema == epoch_table([epoch(1)]).schema


def test_a_log_is_bounded_and_keeps_the_newest_epochs_of_its_query():
    query: Any = SimpleNamespace(id=QUERY)
    log = EpochLog(query, limit=3)
    log.add({**progress(0), "id": "another"})
    for number in (1, 2, 3, 4, 4):
        event: Any = SimpleNamespace(progress=progress(number, rows=number))
        log.onQueryProgress(event)
    assert [e.epoch for e in log.epochs] == [2, 3, 4]
    assert log.to_pandas()["input_rows"].tolist() == [2, 3, 4]


def test_a_log_of_all_queries_tells_their_runs_apart():
    log = EpochLog()
    log.add(progress(1))
    log.add(progress(1, run="another run"))
    assert log.table().column("run_id").to_pylist() == [RUN, "another run"]


@pytest.mark.parametrize("limit", [0, 1.5, True])
def test_a_limit_that_is_no_number_of_epochs_is_refused(limit):
    with pytest.raises(ConfigurationError, match=f"limit {limit} is impossible"):
        EpochLog(limit=limit)
