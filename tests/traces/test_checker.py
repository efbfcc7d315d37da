"""The checker accepts a life that is right, and stops at the event at which it goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traces.by_hand import wound_back
from traces.checker import Checker, RejectedError, check
from traces.events import Event, bins, ordered, read
from traces.lives import CHECKPOINT, FIRST, STEP, Line, life
from traces.ways import pairs, table

FORMATS = (1, 2)


def run(lines: list[Line]) -> None:
    Checker().run(ordered(Event.of(line) for line in lines))


def find(lines: list[Line], event: str, partition: int | None = None, **values: Any) -> Line:
    """The first line of an event with these values."""
    folder = CHECKPOINT if partition is None else f"{CHECKPOINT}/state/0/{partition}"
    return next(
        line
        for line in lines
        if (line["event"], line["dir"]) == (event, folder)
        and all(line.get(key) == value for key, value in values.items())
    )


def after(lines: list[Line], line: Line, **values: Any) -> Line:
    """Another line that its process writes right after one."""
    new = {**line, **values}
    lines.insert(lines.index(line) + 1, new)
    for n, each in enumerate(lines):
        each["n"], each["t"] = n, n
    return new


def a_load_of_another_version(lines: list[Line]) -> Line:
    return _set(find(lines, "loaded", 0, version=4), version=3)


def a_store_that_was_not_rolled_back(lines: list[Line]) -> Line:
    load = find(lines, "loaded", 0, version=4)
    return after(lines, find(lines, "committed", 0, version=5), **{**load, "n": 0})


def a_bin_loaded_by_two_partitions(lines: list[Line]) -> Line:
    return _set(find(lines, "loaded", 1, version=4), bins="0-2")


def a_bin_loaded_by_nobody(lines: list[Line]) -> Line:
    return _set(find(lines, "loaded", 1, version=4), bins="0")


def a_table_of_before_the_step(lines: list[Line]) -> Line:
    return _set(find(lines, "loaded", 1, version=3), entry=FIRST, bins="2-3")


def bins_that_did_not_arrive(lines: list[Line]) -> Line:
    lines.remove(find(lines, "arrived", 0))
    return find(lines, "loaded", 0, version=2)


def bins_that_did_not_leave(lines: list[Line]) -> Line:
    _set(find(lines, "switched", 0), left="0")
    return find(lines, "loaded", 0, version=2)


def bins_from_a_partition_that_never_had_them(lines: list[Line]) -> Line:
    return _set(find(lines, "arrived", 0), **{"from": 0})


def a_copy_that_is_ahead_of_the_switch(lines: list[Line]) -> Line:
    return _set(find(lines, "arrived", 0), up_to=3)


def a_recovery_that_skips_a_version(lines: list[Line]) -> Line:
    return _set(find(lines, "recovery", 0, version=2), stretches=[[0, 2, 2, "0-1"]])


def a_recovery_that_stays_at_the_old_owner(lines: list[Line]) -> Line:
    recovery = find(lines, "recovery", 0, version=3)
    return _set(recovery, stretches=[[1, 1, 3, "2-3"]])


def a_base_that_is_not_there(lines: list[Line]) -> Line:
    return _set(find(lines, "opened", 0, version=3), base=2, base_id="attempt-0-2")


def an_entry_that_is_not_named(lines: list[Line]) -> Line:
    """Another driver has written it for the same epoch."""
    entry = find(lines, "entry", entry=STEP)
    after(lines, entry, entry="2:000000cc", run="r0", owners=[1, 0, 1, 0])
    return _set(find(lines, "epoch", epoch=2), entry="2:000000cc")


def an_entry_that_nobody_has_written(lines: list[Line]) -> Line:
    lines.remove(find(lines, "entry", entry=STEP))
    return find(lines, "epoch", epoch=2)


def an_entry_that_is_written_twice(lines: list[Line]) -> Line:
    return after(lines, find(lines, "entry", entry=STEP), owners=[0, 1, 0, 1])


def a_run_that_begins_under_the_table_of_before(lines: list[Line]) -> Line:
    _set(find(lines, "run claims", number=2), entry=FIRST)
    return find(lines, "run begun", run="r2")


def a_claim_that_two_runs_have(lines: list[Line]) -> Line:
    return _set(find(lines, "run claimed", number=2), number=1)


def a_run_that_is_behind(lines: list[Line]) -> Line:
    claims = find(lines, "run claims", number=2)
    last = find(lines, "epoch", epoch=4)
    one = after(lines, last, **{**claims, "run": "r3", "number": 3, "process": "driver-3"})
    two = after(lines, one, event="run claimed")
    return after(lines, two, event="run begun")


def an_epoch_that_is_logged_twice(lines: list[Line]) -> Line:
    return after(lines, find(lines, "epoch", epoch=4), logged_at=999, process="driver-3")


def an_epoch_that_is_left_out(lines: list[Line]) -> Line:
    return _set(find(lines, "epoch", epoch=4), epoch=5, logged_at=105)


def a_commit_without_a_task(lines: list[Line]) -> Line:
    lines.remove(find(lines, "committed", 1, version=5))
    return find(lines, "epoch", epoch=5)


def other_partitions_than_the_table_has(lines: list[Line]) -> Line:
    return _set(find(lines, "epoch", epoch=4), partitions=3)


def a_delete_of_what_a_retained_version_needs(lines: list[Line]) -> Line:
    """The other partition goes on from these changelogs as long as it has no snapshot of its own."""
    for event in ("uploads", "uploaded", "uploads", "uploaded"):
        lines.remove(find(lines, event, 1))
    return find(lines, "deletes", 0)


def a_delete_of_the_newest_snapshot(lines: list[Line]) -> Line:
    delete = find(lines, "deletes", 0)
    snapshot = "4_attempt-0-4.zip" if "attempt" in delete["files"][0] else "4.zip"
    return _set(delete, files=[f"{CHECKPOINT}/state/0/0/{snapshot}"])


def a_delete_of_the_entry_in_force(lines: list[Line]) -> Line:
    return after(lines, find(lines, "epoch", epoch=5), event="deletes entries", entries=[FIRST, STEP])


def a_plan_that_another_driver_has_accepted(lines: list[Line]) -> Line:
    find(lines, "plan")["file"] = find(lines, "plan forgotten")["file"] = "plan.json"
    return after(
        lines, find(lines, "epoch", epoch=3), event="plan", migration="n", file="plan.json", process="driver-3"
    )


def a_step_that_is_left_out(lines: list[Line]) -> Line:
    return _set(find(lines, "entry", entry=STEP), step=1)


def a_step_of_a_plan_that_was_not_accepted(lines: list[Line]) -> Line:
    lines.remove(find(lines, "plan"))
    return find(lines, "entry", entry=STEP)


def a_rollback_that_leads_elsewhere(lines: list[Line]) -> Line:
    """What it undoes has never moved anything."""
    find(lines, "plan")["migration"] = "n-rollback"
    return _set(find(lines, "entry", entry=STEP), migration="n-rollback")


def an_event_that_nobody_knows(lines: list[Line]) -> Line:
    return _set(find(lines, "switched", 0), event="swapped")


def _set(line: Line, **values: Any) -> Line:
    line.update(values)
    return line


FAULTS: tuple[Callable[[list[Line]], Line], ...] = (
    a_load_of_another_version,
    a_store_that_was_not_rolled_back,
    a_bin_loaded_by_two_partitions,
    a_bin_loaded_by_nobody,
    a_table_of_before_the_step,
    bins_that_did_not_arrive,
    bins_that_did_not_leave,
    bins_from_a_partition_that_never_had_them,
    a_copy_that_is_ahead_of_the_switch,
    a_recovery_that_skips_a_version,
    a_recovery_that_stays_at_the_old_owner,
    a_base_that_is_not_there,
    an_entry_that_is_not_named,
    an_entry_that_nobody_has_written,
    an_entry_that_is_written_twice,
    a_run_that_begins_under_the_table_of_before,
    a_claim_that_two_runs_have,
    a_run_that_is_behind,
    an_epoch_that_is_logged_twice,
    an_epoch_that_is_left_out,
    a_commit_without_a_task,
    other_partitions_than_the_table_has,
    a_delete_of_what_a_retained_version_needs,
    a_delete_of_the_newest_snapshot,
    a_delete_of_the_entry_in_force,
    a_plan_that_another_driver_has_accepted,
    a_step_that_is_left_out,
    a_step_of_a_plan_that_was_not_accepted,
    a_rollback_that_leads_elsewhere,
    an_event_that_nobody_knows,
)


def a_copy_of_an_attempt_that_was_not_committed(lines: list[Line]) -> Line:
    return _set(find(lines, "arrived", 0), attempt="attempt-1-1-twin")


def two_commits_of_one_epoch(lines: list[Line]) -> Line:
    """A run of the same epoch was told other ids."""
    twin = {"0": [["attempt-0-4"], ["twin"]]}
    return after(lines, find(lines, "epoch", epoch=4), ids=twin, process="driver-3")


def a_commit_of_an_attempt_that_nobody_made(lines: list[Line]) -> Line:
    return _set(find(lines, "epoch", epoch=4), ids={"0": [["attempt-0-4"], ["twin"]]})


def a_base_of_an_attempt_that_was_not_committed(lines: list[Line]) -> Line:
    """A twin has uploaded a snapshot of version 2."""
    first = find(lines, "committed", 0, version=2)
    twin = {**first, "id": "twin"}
    for line in (twin, {**twin, "event": "uploads"}, {**twin, "event": "uploaded"}):
        line["process"] = "1-4"
    load, opened = find(lines, "loaded", 0, version=1), find(lines, "opened", 0, version=0)
    at = lines.index(first)
    earlier = [opened, find(lines, "loaded", 0, version=0), find(lines, "committed", 0, version=1), load]
    lines[at:at] = [{**line, "process": "1-4"} for line in earlier] + [
        twin,
        {**twin, "event": "uploads"},
        {**twin, "event": "uploaded"},
    ]
    for n, each in enumerate(lines):
        each["n"], each["t"] = n, n
    return _set(find(lines, "opened", 0, version=3), base=2, base_id="twin")


FAULTS_OF_IDS: tuple[Callable[[list[Line]], Line], ...] = (
    a_copy_of_an_attempt_that_was_not_committed,
    two_commits_of_one_epoch,
    a_commit_of_an_attempt_that_nobody_made,
    a_base_of_an_attempt_that_was_not_committed,
)


@pytest.mark.parametrize("format", FORMATS)
def test_a_life_that_is_right_is_accepted(format: int) -> None:
    run(life(format))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_is_found_where_it_is(fault: Callable[[list[Line]], Line], format: int) -> None:
    assert_found(fault, life(format))


@pytest.mark.parametrize("fault", FAULTS_OF_IDS, ids=lambda f: f.__name__)
def test_an_attempt_that_does_not_count_is_found(fault: Callable[[list[Line]], Line]) -> None:
    assert_found(fault, life(2))


def test_an_upload_of_a_lost_epoch_is_found() -> None:
    """The query was wound back and has logged epoch 4 anew; an executor of before uploads what it had made."""

    def fault(lines: list[Line]) -> Line:
        _wind_back(lines)
        last = lines[-1]
        return after(lines, last, **_of(find(lines, "committed", 0, version=5), event="uploads"))

    assert_found(fault, life(1))


def test_what_is_wound_back_is_run_again() -> None:
    lines = life(1)
    _wind_back(lines)
    run(lines)


def test_what_was_read_before_logs_were_wound_back_stays_before_it() -> None:
    lines = life(1)
    _wind_back(lines)
    again = find(lines, "epoch", epoch=4, run="r3")
    # It reads the last version, whose epoch is only planned afterwards.
    reads = {**find(lines, "recovery", 0, version=3), "version": 5, "process": "reader"}
    lines.insert(lines.index(find(lines, "wound back")), reads)
    lines.append({**again, "epoch": 5, "logged_at": 205})
    for n, each in enumerate(lines):
        each["n"], each["t"] = n, n
    names = [(e.name, e.process) for e in ordered(Event.of(line) for line in lines)]
    assert names.index(("recovery", "reader")) < names.index(("wound back", "hand"))


def test_a_driver_that_was_replaced_may_look_for_files_that_its_successor_has_deleted() -> None:
    lines = life(1)
    opened = _of(find(lines, "opened", 1), process="late", version=2)
    lines.insert(lines.index(find(lines, "epoch", epoch=2)) + 1, opened)
    lines.append(_of(find(lines, "arrived", 1), process="late"))
    for n, each in enumerate(lines):
        each["n"], each["t"] = n, n
    run(lines)


def assert_found(fault: Callable[[list[Line]], Line], lines: list[Line]) -> None:
    wrong = fault(lines)
    with pytest.raises(RejectedError) as found:
        run(lines)
    at = (found.value.event.process, found.value.event.n)
    assert at == (wrong["process"], wrong["n"]), str(found.value)


def _of(line: Line, **values: Any) -> Line:
    return {**line, **values}


def _wind_back(lines: list[Line]) -> None:
    """Epoch 4, which has run and is not known to be committed, is taken out of the logs and logged anew."""
    del lines[lines.index(find(lines, "epoch", epoch=5)) :]
    claims = {**find(lines, "run claims", number=2), "run": "r3", "number": 3, "epoch": 4, "logged_at": 204}
    hand = {"event": "wound back", "dir": CHECKPOINT, "process": "hand", "offsets": 4, "commits": 4}
    epoch = {**find(lines, "epoch", epoch=4), "run": "r3", "logged_at": 204}
    epoch.pop("named")
    for line in (hand, claims, {**claims, "event": "run claimed"}, {**claims, "event": "run begun"}, epoch):
        lines.append({**line, "process": line["process"] if line is hand else "driver-3"})
    for n, each in enumerate(lines):
        each["n"], each["t"] = n, n


def test_events_come_after_what_they_build_on_whatever_the_clocks_say() -> None:
    lines = life(2)
    for line in lines:
        line["t"] = -line["t"] if line["process"].startswith("0-") else line["t"]
    run(lines)


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    by_process: dict[str, str] = {}
    for line in life(2):
        text = json.dumps(line, separators=(",", ":")) + "\n"
        by_process[line["process"]] = by_process.get(line["process"], "") + text
    for process, text in by_process.items():
        (tmp_path / f"{process}.jsonl").write_text(text + '{"t":1,"n":99,"process":"0-')
    assert check(tmp_path).accepted == len(life(2))


def test_a_life_whose_beginning_is_missing_is_not_checked(tmp_path: Path) -> None:
    lines = [line for line in life(2) if line["process"] != "driver-1"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert check(tmp_path).unchecked == {CHECKPOINT: "its beginning is not in the trace"}


def test_ways_that_were_under_way_for_one_partition_make_a_pair() -> None:
    lines = life(2)
    ordered_ahead = {"order": "o", "epoch": 1, "base": 1, "delivery": "ahead", "splits": {}}
    after(
        lines,
        find(lines, "epoch", epoch=1),
        **ordered_ahead,
        event="order",
        moves=[[1, 0, "2-3"], [0, 1, "0-1"]],
    )
    after(lines, find(lines, "epoch", epoch=2), event="order closed", order="o")
    after(lines, find(lines, "switched", 0), event="swept")
    found = pairs(ordered(Event.of(line) for line in lines))
    assert found == {("copied ahead", "sweep")}
    assert "| copied ahead |" in table([[" + ".join(pair) for pair in found]])


def test_a_note_of_winding_back_says_what_the_logs_have(tmp_path: Path) -> None:
    for log, epochs in (("offsets", range(3)), ("commits", range(2))):
        (tmp_path / "checkpoint" / log).mkdir(parents=True)
        for epoch in epochs:
            (tmp_path / "checkpoint" / log / str(epoch)).touch()
    wound_back(tmp_path / "trace", tmp_path / "checkpoint")
    (events,) = read(tmp_path / "trace", under=tmp_path).values()
    assert [(e.name, e["offsets"], e["commits"]) for e in events] == [("wound back", 3, 2)]
    assert read(tmp_path / "trace", under=tmp_path / "other") == {}


def test_ranges_of_bins_are_read() -> None:
    assert bins("0-2,5") == [0, 1, 2, 5]
    assert bins("") == []
