"""Deadlines, guards, and migrations that are rolled back, with a simulated driver."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from binshift import (
    Batched,
    Controller,
    Guard,
    Migration,
    MigrationError,
    MigrationReport,
    PlanError,
    RoutingTable,
)
from binshift.planning.limits import Deadline, rollback_of, undone_by
from binshift.planning.options import MigrationOptions
from binshift.planning.plan import undoing
from binshift.progress import ProgressBar

#: Any, so that mypy accepts calls with wrong types.
API: Any = SimpleNamespace(Guard=Guard, deadline=Deadline.of)
ONE = RoutingTable(1, (0,) * 128)
PLAN = Batched(16).plan(ONE, ONE.balanced(2))
WHY = "its deadline of 600 s passed after 2 of 4 steps"
UNDONE = rollback_of("an-id")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (600, {"seconds": 600}),
        (2.5, {"seconds": 2.5}),
        (np.int64(600), {"seconds": 600}),
        ("600", {"seconds": 600}),
        ("600 s", {"seconds": 600}),
        ("0.5s", {"seconds": 0.5}),
        (" 10 min ", {"seconds": 600}),
        ("10 Minutes", {"seconds": 600}),
        ("2 h", {"seconds": 7200}),
        ("1 hour", {"seconds": 3600}),
        ("30 epochs", {"epochs": 30}),
        ("1 epoch", {"epochs": 1}),
    ],
)
def test_a_deadline_is_a_number_of_seconds_or_a_text_with_a_unit(value, told):
    deadline = Deadline.of(value)
    assert deadline is not None
    assert json.loads(json.dumps(deadline.as_dict())) == told
    assert Deadline.of(None) is None


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        float("inf"),
        float("nan"),
        1e10,
        True,
        "",
        "soon",
        "0 s",
        "-5 s",
        "1.5 epochs",
        "5 days",
        "10 m",
        b"5",
    ],
)
def test_another_deadline_is_impossible(value):
    with pytest.raises(
        PlanError, match=r"^deadline .* is impossible; give a number of seconds above 0"
    ) as error:
        API.deadline(value)
    assert (error.value.condition, error.value.parameters["name"]) == ("INVALID_VALUE", "deadline")


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ({"longest_epoch_s": 0}, "longest_epoch_s"),
        ({"longest_epoch_s": -2.0}, "longest_epoch_s"),
        ({"longest_epoch_s": float("inf")}, "longest_epoch_s"),
        ({"longest_epoch_s": "2"}, "longest_epoch_s"),
        ({"longest_epoch_s": 2.0, "epochs": 0}, "epochs"),
        ({"longest_epoch_s": 2.0, "epochs": 1.5}, "epochs"),
    ],
)
def test_an_impossible_guard_is_refused(how, name):
    with pytest.raises(PlanError) as error:
        API.Guard(**how)
    assert (error.value.condition, error.value.parameters["name"]) == ("INVALID_VALUE", name)


class Driver:
    """Accepts plans, and tells what the test wants about a migration and the one that undoes it."""

    poll_s = 0.0
    id, name = "a-query", None

    def __init__(self, *told: dict[str, Any], undoing: dict[str, Any] | None = None) -> None:
        self.told, self.undoing = list(told), undoing
        self.options: list[dict[str, Any]] = []
        self.rolled_back: list[str] = []

    def routing(self) -> str:
        return json.dumps({"epoch": 0, "partitions": 1, "assignment": ONE.assignment, "whole_bins": []})

    def placement(self) -> str:
        return json.dumps({"executors": ["1", "2"], "partitions": [["1"]]})

    def statistics(self) -> None:
        return None

    def has_begun(self) -> bool:
        return True

    def earliest_epoch(self, plan: str, *, prepare: bool) -> None:
        return None

    def submit(self, plan: str, options: str) -> str:
        self.options.append(json.loads(options))
        return "an-id"

    def rollback(self, migration: str) -> None:
        self.rolled_back.append(migration)

    def progress(self, migration: str) -> str:
        if migration == UNDONE:
            return json.dumps({"committed_epoch": 20, **(self.undoing or {})})
        told = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        return json.dumps({"committed_epoch": 20, **told})

    def history(self, migration: str | None = None) -> str:
        """The steps of the migration took effect at epochs 6 and 8, and were undone at 14 and 17."""
        epochs, steps = ((14, 17), 2) if migration == UNDONE else ((6, 8), 4)
        return json.dumps(
            [
                {
                    "epoch": epoch,
                    "partitions": 2,
                    "written_at": "2026-01-01T00:00:00Z",
                    "step": {
                        "migration_id": migration,
                        "index": i,
                        "steps": steps,
                        "strategy": "x",
                        "moves": 16,
                    },
                }
                for i, epoch in enumerate(epochs)
            ]
        )

    def recent_progress(self) -> list[dict[str, Any]]:
        return []

    def last_progress(self) -> None:
        return None

    def is_active(self) -> bool:
        return False

    def require_active(self) -> None:
        """The query's end has no other reason."""


def controller(driver: Driver) -> Controller:
    link: Any = driver
    return Controller(link)


def migration(driver: Driver) -> Migration:
    return Migration(controller(driver), "an-id", PLAN)


def test_all_calls_that_move_bins_say_the_same_to_the_driver():
    driver = Driver({"state": "running", "steps_done": 0})
    this = controller(driver)
    limits: dict[str, Any] = {"deadline": "10 min", "on_timeout": "rollback", "guard": Guard(2)}
    this.rescale(2, **limits)
    this.submit(PLAN, **limits)
    this.rebalance("bins", **limits)
    this.rebalance("bins", grow=True, **limits)
    told = {
        "deadline": {"seconds": 600},
        "on_timeout": "rollback",
        "guard": {"longest_epoch_s": 2, "epochs": 3},
    }
    assert [{n: o.get(n) for n in told} for o in driver.options] == [told] * 4
    this.rescale(2, deadline="30 epochs")
    assert (driver.options[-1]["deadline"], driver.options[-1]["on_timeout"]) == ({"epochs": 30}, "finish")
    this.rescale(2)
    assert set(told) & set(driver.options[-1]) == set()


@pytest.mark.parametrize("on_timeout", ["keep", "rollback"])
def test_what_happens_at_a_deadline_needs_one_and_nothing_is_asked_before(on_timeout):
    this: Any = controller(Driver())
    for act in (this.rescale, this.rebalance, lambda _, **how: this.submit(PLAN, **how)):
        with pytest.raises(
            PlanError, match=rf"^on timeout '{on_timeout}' without a deadline is impossible; give a"
        ):
            act("rows" if act == this.rebalance else 2, on_timeout=on_timeout)
    with pytest.raises(
        PlanError, match=r"^on timeout 'explode' is impossible; give 'finish' or 'keep' or 'rol"
    ):
        this.rescale(2, deadline=5, on_timeout="explode")
    assert not MigrationOptions(deadline=Deadline(5)).may_end_early
    assert MigrationOptions(guard=Guard(2)).may_end_early


def test_the_plan_that_undoes_some_steps_leads_back_over_the_same_tables():
    tables = [PLAN.source, *PLAN.tables()]
    for taken in range(len(PLAN.steps) + 1):
        back = undoing(PLAN, taken)
        assert [back.source, *back.tables()] == tables[taken::-1]
    assert (undone_by(UNDONE), undone_by("an-id")) == ("an-id", None)


ROLLING: dict[str, Any] = {"state": "rolling-back", "steps_done": 2, "undone": WHY}
OVER: dict[str, Any] = ROLLING | {"state": "rolled-back", "rollback_id": UNDONE}


def test_a_wait_goes_on_until_the_rollback_is_over_and_the_report_has_both():
    driver = Driver(
        {"state": "running", "steps_done": 2},
        ROLLING,
        ROLLING | {"rollback_id": UNDONE},
        OVER,
        undoing={"state": "finished", "steps_done": 2},
    )
    report = migration(driver).wait()
    assert len(driver.told) == 1
    assert (report.steps, report.first_epoch, report.last_epoch) == (2, 6, 8)
    assert (report.cancelled, report.undone) == (False, WHY)
    assert report.rollback is not None
    assert (report.rollback.id, report.rollback.steps, report.rollback.bins_moved) == (UNDONE, 2, 32)
    assert (report.rollback.first_epoch, report.rollback.last_epoch) == (14, 17)
    first, *lines = str(report).splitlines()
    assert first == (
        f"MigrationReport: batched(16), rolled back because {WHY}: 32 bins (?) in 2 steps, epochs 6 to 8; "
        "longest epoch ?; 2 steps were undone at epochs 14 and 17"
    )
    assert [line.split()[0] for line in lines] == ["step", "1", "2", "Undone", "step", "1", "2"]
    assert WHY in report._repr_html_()
    assert report._repr_html_().count("<table") == 2


def reported(told: dict[str, Any], undoing: dict[str, Any] | None = None) -> MigrationReport:
    return migration(Driver(told, undoing=undoing)).wait()


@pytest.mark.parametrize(
    ("told", "undoing", "begins", "ends"),
    [
        (
            OVER,
            {"state": "finished", "steps_done": 1},
            "rolled back because its",
            "; 1 step was undone at epoch 17",
        ),
        (
            OVER | {"undone": None},
            {"state": "finished", "steps_done": 2},
            "rolled back: 32 bins",
            "; 2 steps were undone at epochs 14 and 17",
        ),
        (
            OVER | {"steps_done": 0, "rollback_id": None},
            None,
            f"rolled back because {WHY} without a step",
            "without a step",
        ),
        (
            OVER | {"state": "cancelled"},
            {"state": "cancelled", "steps_done": 1},
            "cancelled: 32 bins",
            "; 1 step was undone at epoch 17, and then the rollback was cancelled",
        ),
        (
            {
                "state": "cancelled",
                "steps_done": 2,
                "undone": None,
                "ended_because": "its deadline of 5 s passed",
            },
            None,
            "cancelled because its deadline of 5 s passed: 32 bins",
            "longest epoch ?",
        ),
    ],
)
def test_a_report_says_how_and_why_the_migration_has_ended(told, undoing, begins, ends):
    first = str(reported(told, undoing)).splitlines()[0]
    assert first.startswith(f"MigrationReport: batched(16), {begins}")
    assert first.endswith(ends)


@pytest.mark.parametrize(
    ("told", "undoing", "said", "undone"),
    [
        (
            ROLLING,
            None,
            f"rolling back because {WHY}: 0 of 2 steps undone; the next step takes effect after",
            0,
        ),
        (
            ROLLING | {"rollback_id": UNDONE},
            {"state": "running", "steps_done": 1, "scheduled_epoch": 18},
            f"rolling back because {WHY}: 1 of 2 steps undone; the next step takes effect at epoch 18",
            1,
        ),
        (
            ROLLING | {"rollback_id": UNDONE},
            {"state": "waiting", "steps_done": 0, "waits": "waits for 3 copies"},
            f"rolling back because {WHY}: 0 of 2 steps undone; the next step waits for 3 copies, and the query",
            0,
        ),
        (OVER, {"state": "finished", "steps_done": 2}, f"rolled back because {WHY}: 2 of 2 steps undone", 2),
        (
            ROLLING | {"state": "stopped", "rollback_id": UNDONE},
            {"state": "stopped", "steps_done": 1},
            "stopped: 2 of 4 steps done; the query has ended, and its rollback carries on when it is started",
            1,
        ),
        (
            OVER | {"state": "cancelled", "undone": None},
            {"state": "cancelled", "steps_done": 1},
            "cancelled: 2 of 4 steps done, 1 of 2 steps undone",
            1,
        ),
    ],
)
def test_the_status_says_how_many_steps_are_undone_and_why(told, undoing, said, undone):
    status = migration(Driver(told, undoing=undoing)).status
    assert status.message.startswith(said)
    assert (status.steps_done, status.steps_undone) == (2, undone)
    assert status.is_over is (told["state"] in ("rolled-back", "cancelled"))


def test_a_query_that_ends_during_a_rollback_ends_the_wait():
    stopped = ROLLING | {"state": "stopped", "rollback_id": UNDONE}
    with pytest.raises(MigrationError, match="its rollback carries on when it is started again"):
        reported(stopped, {"state": "stopped", "steps_done": 1})


def test_whoever_waits_after_a_rollback_by_hand_waits_for_its_end():
    driver = Driver({"state": "finished", "steps_done": 4}, undoing={"state": "finished", "steps_done": 4})
    this = migration(driver)
    before = this._ended().result(60)
    assert (before.undone, before.rollback) == (None, None)
    driver.told = [ROLLING | {"steps_done": 4}, OVER | {"steps_done": 4, "undone": "somebody asked for it"}]
    this.rollback()
    assert driver.rolled_back == ["an-id"]
    after = this._ended().result(60)
    assert (after.undone, after.rollback is not None) == ("somebody asked for it", True)


def test_a_bar_goes_back_while_steps_are_undone(capsys):
    shown = []
    bar = ProgressBar(PLAN, is_shown=False)
    bar._show = lambda *what: shown.append(what)  # type: ignore[method-assign]
    for undone in range(3):
        driver = Driver(ROLLING | {"rollback_id": UNDONE}, undoing={"state": "running", "steps_done": undone})
        bar.update(migration(driver).status, None)
    bar.finish(reported(OVER, {"state": "finished", "steps_done": 2}))
    assert [(state, bins) for state, bins, _ in shown] == [
        ("rolling-back", 32),
        ("rolling-back", 16),
        ("rolling-back", 0),
        ("rolled back", 0),
    ]
