"""Fetches from other executors, some of which don't answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness import until


@pytest.fixture
def executors(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestFetches


@pytest.fixture
def fetches(executors: Any) -> Iterator[Any]:
    with closing(executors.open()) as fetches:
        yield fetches


def test_an_executor_that_does_not_answer_holds_few_threads_and_keeps_nobody_else_waiting(
    executors: Any, fetches: Any
) -> None:
    most = executors.mostOfAnExecutor()
    asked = [fetches.isAskedInVain("hangs") for _ in range(most + 3)]
    assert asked == [True] * most + [False] * 3
    assert fetches.ask("hangs", "block") == ""
    assert until(lambda: fetches.ask("answers", "block") == "block")
    assert not fetches.isToldOfLateAnswer(0)
    fetches.close()
    assert fetches.isToldOfLateAnswer(60)
    assert until(lambda: fetches.ask("hangs", "block") == "block")


def test_who_asks_hears_of_an_error_and_may_ask_again(executors: Any, fetches: Any) -> None:
    # No fetch counts as under way any more.
    for _ in range(executors.mostOfAnExecutor() + 1):
        assert until(lambda: fetches.askForError("fails", "lost") == "lost")
    assert until(lambda: fetches.ask("fails", "block") == "block")
