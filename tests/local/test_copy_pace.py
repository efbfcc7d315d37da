"""The pace of copies follows the durations of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

MB = 1 << 20
FIRST, LEAST, MOST = 8 * MB, MB, 1024 * MB

Rates = Callable[..., list[int]]


@pytest.fixture(scope="module")
def rates(spark: SparkSession) -> Rates:
    """The rate after each task; of a task, its milliseconds and whether something was copied meanwhile.

    Copies that wait may go at `bound` at most; none waits if it is 0.
    """
    pace = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestCopyPace

    def rates(tasks: Iterable[tuple[int, bool]], bound: int = 2 * MOST) -> list[int]:
        told = [{"ms": ms, "copied": copied} for ms, copied in tasks]
        return json.loads(pace.rates(json.dumps(told), bound))

    return rates


QUIET = [(300, False)] * 3


def test_copies_go_faster_as_long_as_tasks_do_not_notice(rates: Rates) -> None:
    found = rates([*QUIET, *[(310, True)] * 5])
    assert found[3:] == [FIRST, 12 * MB, 18 * MB, 27 * MB, 27 * MB * 3 // 2]


def test_copies_that_have_all_they_want_get_no_more(rates: Rates) -> None:
    assert set(rates([*QUIET, *[(310, True)] * 5], 0)) == {FIRST}


def test_the_rate_stays_near_the_bound_so_that_it_counts_once_tasks_take_longer(rates: Rates) -> None:
    found = rates([*QUIET, *[(310, True)] * 20, *[(400, True)] * 2], 16 * MB)
    assert found[-2:] == [18 * MB, 9 * MB]


def test_copies_go_half_as_fast_once_tasks_take_longer(rates: Rates) -> None:
    assert rates([*QUIET, *[(400, True)] * 5])[3:] == [FIRST, 4 * MB, 2 * MB, LEAST, LEAST]


def test_a_task_in_three_that_takes_longer_is_no_sign(rates: Rates) -> None:
    # Short tasks are judged together, in groups of a quarter of a second.
    short = [(50, False)] * 3
    assert rates([*short, *[(50, True), (50, True), (900, True)] * 4])[-1] > FIRST


def test_nothing_is_judged_before_it_is_known_what_tasks_take(rates: Rates) -> None:
    assert set(rates([(300, False), *[(900, True)] * 9])) == {FIRST}


def test_tasks_that_take_longer_for_good_do_not_hold_copies_up_for_ever(rates: Rates) -> None:
    found = rates([*QUIET, *[(900, True)] * 20])
    assert LEAST in found
    assert found[-1] > FIRST


@given(st.lists(st.tuples(st.integers(0, 10_000), st.booleans()), max_size=80))
def test_the_rate_goes_up_by_a_half_or_down_by_half_within_its_bounds(
    rates: Rates, tasks: list[tuple[int, bool]]
) -> None:
    found = rates(tasks)
    for before, after in pairwise([FIRST, *found]):
        assert after in {before, min(MOST, before + before // 2), max(LEAST, before // 2)}


@pytest.fixture(scope="module")
def meter(spark: SparkSession) -> Callable[[], Any]:
    """Creates meters whose clocks only go on while a thread waits."""
    meters = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestMeter
    opened: Callable[[], Any] = meters.open
    return opened


@given(pieces=st.integers(1, 50), size=st.integers(1, MB), faster=st.integers(1, 64))
def test_what_is_read_of_a_checkpoint_takes_its_bytes_by_the_bound(
    meter: Callable[[], Any], pieces: int, size: int, faster: int
) -> None:
    # For each piece, the time is rounded down to a nanosecond.
    assert meter().read(pieces, size, FIRST * faster) == pieces * (size * 10**9 // (FIRST * faster))


def test_who_reads_a_checkpoint_holds_its_thread_no_longer_than_at_the_first_rate(
    meter: Callable[[], Any],
) -> None:
    shared = meter()
    assert shared.receive(64 * MB, MB) == 5 * 10**9
    assert shared.read(1, MB, MB) == 10**9 * MB // FIRST
