"""The autoscaler's actions from look to look, on a simulated query and simulated executors."""

import logging
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from binshift import AllAtOnce, Autoscaler, ConfigurationError, MigrationError
from binshift.autoscaling import Action
from binshift.planning.placement import Placement
from harness import until


class Played:
    """Simulates a controller and its link: the query has epochs of 10 s, and each executor has one core."""

    id = "q"

    def __init__(self, *homes):
        self.homes = list(homes)
        self.executors = sorted(set(homes))
        self.others = set()
        self.leaving = set()
        #: Executors that Spark has but gives no tasks.
        self.excluded = []
        self.total = None
        self.configured = None
        self.is_owned = False
        self.is_up = True
        self.error = None
        self.epochs = []
        self.planned = -1
        #: How far the driver's clock is ahead of the client's, in seconds.
        self.ahead_s = 0.0
        self.done = []
        #: The strategy of each rescale, and whether it prepares.
        self.moved_by = []
        self.looks_up_by_key = True
        self._link = self

    def is_real_time(self):
        return False

    def reports_kept(self):
        return 100

    def run(self, n, busy_s):
        """Adds epochs; the last of them has just ended."""
        length = max(10.0, busy_s)
        start = time.time() + self.ahead_s - n * length
        for i in range(n):
            self.planned += 1
            started = datetime.fromtimestamp(start + i * length, UTC)
            self.epochs.append(
                {
                    "id": "q",
                    "runId": "r",
                    "batchId": self.planned,
                    "timestamp": started.isoformat(),
                    "durationMs": {"addBatch": 1, "triggerExecution": int(busy_s * 1000)},
                    "numInputRows": 1000,
                    "stateOperators": [
                        {
                            "numShufflePartitions": len(self.homes),
                            "numRowsTotal": 0,
                            "numRowsUpdated": 0,
                            "memoryUsedBytes": 0,
                            "customMetrics": {},
                        }
                    ],
                }
            )

    def is_active(self):
        return self.is_up

    def recent_progress(self):
        if self.error is not None:
            raise self.error
        return self.epochs

    def planned_epoch(self):
        return self.planned, time.time() + self.ahead_s

    def migration(self):
        return None

    def routing(self):
        return SimpleNamespace(bins=128, partitions=len(self.homes))

    def task_slots(self):
        return len(self.executors)

    def _placement(self):
        homes = tuple((e,) for e in self.homes)
        leaving = tuple(sorted(self.leaving))
        return Placement(
            tuple(self.executors),
            homes,
            leaving=leaving,
            configured=self.configured,
            excluded=tuple(self.excluded),
        )

    def require_own_executors(self):
        assert not self.is_owned

    def request_executors(self, total):
        self.is_owned, self.total = True, total

    def leave_executors_to_others(self):
        self.is_owned = False

    def executors_of_others(self):
        return sorted(self.others)

    def give_back_executors(self, executors):
        going = [e for e in executors if e not in self.others and e not in self.homes]
        self.executors = [e for e in self.executors if e not in going]
        self.leaving -= set(going)
        self.done.append(("gave back", *going))
        return going

    def drain(self, executor):
        self.done.append(("drained", executor))
        places = self._placement().drained(executor)
        self.homes = [places.get(p, e) for p, e in enumerate(self.homes)]
        self.leaving.add(executor)

    def _in_force(self):
        return SimpleNamespace(whole_bins=() if self.looks_up_by_key else ("an operator scans",))

    def rescale(self, to, *, strategy, place_on, prepare):
        self.done.append((to, *place_on))
        self.moved_by.append((strategy, prepare))
        self.leaving -= set(place_on)

    def rebalance(self, by, *, max_moves, place_on):
        self.done.append(("filled", *place_on))
        self.leaving -= set(place_on)


def scaled(played: Any, **kwargs):
    limits = {"min_partitions": 1, "max_partitions": 8, "max_executors": 4, "cooldown_s": 0.0}
    return Autoscaler(played, epoch_s=10.0, mode="act", **{**limits, **kwargs})


def looks(autoscaler, played, n, busy_s=6.5):
    for _ in range(n):
        played.run(6, busy_s)
        autoscaler.step()


def rescaled_to_three():
    """An autoscaler that has just asked for a third partition, for which an executor is free."""
    played = Played("1", "2")
    played.executors.append("3")
    autoscaler = scaled(played, max_executors=None)
    looks(autoscaler, played, 1, busy_s=9.0)
    assert played.done == [(3, "3")]
    return autoscaler, played


def test_executors_that_other_queries_use_are_neither_drained_nor_given_back():
    played = Played("1", "2", "3", "4")
    played.homes = ["1", "2"]
    played.others = {"3", "4"}
    autoscaler = scaled(played)
    looks(autoscaler, played, 4)
    assert played.done == []
    # Shared executors stay while other queries use them.
    played.others = {"4"}
    looks(autoscaler, played, 4)
    assert played.done == [("gave back", "3")]
    assert (played.executors, played.total) == (["1", "2", "4"], 3)


@pytest.mark.parametrize(("configured", "held"), [(None, 2), (1, 2), (3, 3), (9, 4)])
def test_executors_that_are_still_starting_are_not_cut_by_the_first_look(configured, held):
    played = Played("1", "2")
    played.configured = configured
    scaled(played).step()
    assert played.total == held


def test_no_more_executors_are_drained_than_are_spare_beside_those_of_others():
    played = Played("1", "2", "3", "4")
    played.others = {"4"}
    played.task_slots = lambda: 2 * len(played.executors)  # type: ignore[method-assign]
    autoscaler = scaled(played)
    looks(autoscaler, played, 8)
    # The four partitions are on two executors of the query's own and on one that is shared.
    assert played.done == [("drained", "3"), ("gave back", "3")]
    assert (played.executors, played.total) == (["1", "2", "4"], 3)
    assert played.leaving == set()


def test_partitions_that_come_to_an_executor_after_the_look_keep_it():
    played = Played("1", "2")
    played.homes = ["1"]
    played.executors_of_others = list  # type: ignore[method-assign]
    played.others = {"2"}
    autoscaler = scaled(played)
    looks(autoscaler, played, 1)
    assert played.done == [("gave back",)]
    assert played.total == 2
    del played.executors_of_others
    looks(autoscaler, played, 2)
    assert played.done == [("gave back",)]


def test_an_executor_that_was_drained_gets_partitions_when_the_load_rises():
    played = Played("1", "2", "3", "4")
    played.task_slots = lambda: 2 * len(played.executors)  # type: ignore[method-assign]
    autoscaler = scaled(played, min_executors=3)
    looks(autoscaler, played, 1)
    assert played.done == [("drained", "4")]
    looks(autoscaler, played, 1, busy_s=30.0)
    assert played.done[1:] == [("filled", "4")]
    assert (played.leaving, played.total) == (set(), 4)


def test_an_executor_that_somebody_else_has_drained_stays_empty():
    played = Played("1", "2", "3", "4")
    played.drain("4")
    played.done.clear()
    autoscaler = scaled(played, max_executors=5)
    looks(autoscaler, played, 1, busy_s=30.0)
    assert autoscaler.decisions[-1].action is Action.REQUEST
    assert autoscaler.decisions[-1].executors == 4
    # Spark still counts it.
    assert played.total == 5
    looks(autoscaler, played, 1, busy_s=30.0)
    assert "asked for, and are not there yet" in autoscaler.decisions[-1].reason
    assert played.leaving == {"4"}


def test_a_change_is_not_taken_back_after_whole_partitions_moved_either():
    autoscaler, played = rescaled_to_three()
    played.homes = ["1", "2", "1"]
    looks(autoscaler, played, 1)
    assert played.done == [(3, "3"), ("filled", "3")]
    played.homes = ["1", "2", "3"]
    looks(autoscaler, played, 1, busy_s=2.0)
    assert "would take back the last change" in autoscaler.decisions[-1].reason


def test_a_change_is_not_taken_back_because_epochs_before_its_step_were_seen_after_it():
    autoscaler, played = rescaled_to_three()
    played.run(1, busy_s=9.0)
    played.homes = ["1", "2", "3"]
    autoscaler.step()
    looks(autoscaler, played, 1, busy_s=2.0)
    assert "would take back the last change" in autoscaler.decisions[-1].reason


def test_a_change_that_was_cancelled_is_not_held_against_the_next_one():
    autoscaler, played = rescaled_to_three()
    # Two partitions go on, although one would now be enough for the same input.
    looks(autoscaler, played, 1, busy_s=2.0)
    assert played.done[1:] == [(1, "3")]


def test_more_epochs_than_the_query_remembers_are_refused():
    with pytest.raises(ConfigurationError, match=r"window 101.*at most 100.*numRecentProgressUpdates"):
        scaled(Played("1"), window=101)
    assert scaled(Played("1"), window=100).decisions == ()


def test_a_look_that_fails_is_told_and_the_next_one_goes_on(caplog):
    played = Played("1")
    played.run(6, 6.5)
    played.error = OSError("calling o1\n: 503 Slow Down\n  at trace")
    caplog.set_level(logging.INFO, "binshift")
    autoscaler = scaled(played, interval_s=0.001)
    with autoscaler:
        assert until(lambda: "4 looks in a row have failed" in caplog.text)
        assert autoscaler.failure is played.error
        assert autoscaler.is_running
        assert [d.reason for d in autoscaler.decisions] == [
            "this look has failed: OSError: calling o1 : 503 Slow Down"
        ]
        played.error = None
        assert until(lambda: autoscaler.failure is None)
        assert autoscaler.is_running
        assert until(lambda: "dead band" in autoscaler.decisions[-1].reason)
        played.error = MigrationError("it came first")
        assert until(lambda: isinstance(autoscaler.failure, MigrationError))
        played.is_up = False
        assert until(lambda: not autoscaler.is_running)
    assert autoscaler.failure is None
    # The third look was not reported.
    assert "3 looks in a row" not in caplog.text


def test_an_autoscaler_that_is_stopped_leaves_the_executors_to_others():
    played = Played("1", "2")
    autoscaler = scaled(played)
    looks(autoscaler, played, 1)
    assert (played.is_owned, played.total) == (True, 2)
    autoscaler.stop()
    assert (played.is_owned, played.total) == (False, 2)
    # The next look asks again.
    looks(autoscaler, played, 1)
    assert (played.is_owned, played.total) == (True, 2)


def test_one_that_never_asked_for_executors_leaves_none_to_others():
    played = Played("1")
    played.is_owned = True
    autoscaler = Autoscaler(played, min_partitions=1, max_partitions=2, epoch_s=10.0)  # type: ignore[arg-type]
    looks(autoscaler, played, 1)
    autoscaler.stop()
    assert played.is_owned


def test_a_driver_that_is_gone_does_not_keep_an_autoscaler_from_stopping(caplog):
    played = Played("1")
    autoscaler = scaled(played)
    looks(autoscaler, played, 1)

    def gone():
        raise ConnectionError("no answer")

    played.leave_executors_to_others = gone  # type: ignore[method-assign]
    autoscaler.stop()
    assert "no answer" in caplog.text


def test_time_without_an_epoch_is_not_time_in_which_one_runs():
    played = Played("1")
    played.run(6, 30.0)
    autoscaler = scaled(played, max_executors=None)
    for epoch in played.epochs:
        began = datetime.fromisoformat(epoch["timestamp"]).timestamp()
        epoch["timestamp"] = datetime.fromtimestamp(began - 3600, UTC).isoformat()
    assert autoscaler.step().reason.startswith("no epoch has run for 3")
    # Meanwhile the next epoch was planned.
    played.planned += 1
    assert "the limit is 1 cores" in autoscaler.step().reason


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_time_is_told_by_the_driver_s_clock(ahead_s):
    played = Played("1", "2")
    played.ahead_s = ahead_s
    autoscaler = scaled(played, max_executors=None)
    looks(autoscaler, played, 1, busy_s=1.0)
    assert played.done == [(1,)]


def test_an_executor_that_an_earlier_autoscaler_drained_makes_room_for_another():
    played = Played("1")
    played.executors.append("2")
    played.leaving.add("2")
    autoscaler = scaled(played, max_executors=2)
    looks(autoscaler, played, 1, busy_s=30.0)
    assert played.done == [("gave back", "2")]
    looks(autoscaler, played, 1, busy_s=30.0)
    assert played.total == 2


def test_executors_are_left_to_others_also_after_a_request_that_was_refused():
    played = Played("1")
    autoscaler = scaled(played)

    def refused(total):
        played.is_owned = True
        raise MigrationError("not taken")

    played.request_executors = refused  # type: ignore[method-assign]
    with pytest.raises(MigrationError):
        looks(autoscaler, played, 1)
    autoscaler.stop()
    assert not played.is_owned


@pytest.mark.parametrize(("by_key", "busy_s"), [(True, 12.0), (True, 9.0), (False, 12.0)])
def test_a_query_that_is_behind_gets_partitions_on_demand_where_its_rows_can_come_so(by_key, busy_s):
    played = Played("a", "b")
    played.executors = ["a", "b", "c", "d"]
    played.looks_up_by_key = by_key
    autoscaler = scaled(played, max_executors=None, strategy=AllAtOnce())
    looks(autoscaler, played, 1, busy_s)
    is_urgent = by_key and busy_s > 10
    assert played.moved_by == [(None, False) if is_urgent else (AllAtOnce(), True)]


def test_executors_that_spark_excludes_are_asked_for_as_well():
    played = Played("a", "b")
    played.excluded = ["x"]
    looks(scaled(played, max_executors=8), played, 1, busy_s=12.0)
    # One of them is the excluded executor, which gets no partitions.
    assert played.total == 3 + 1
    crowded = Played("a", "b")
    crowded.excluded = ["x", "y"]
    looks(scaled(crowded, max_executors=4), crowded, 1, busy_s=12.0)
    assert crowded.total in (None, 4)
