"""A controller's refusals and their reasons, for given answers of a simulated driver."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from binshift import AllAtOnce, Batched, Bounded, ConfigurationError, Controller, Fluid, PlanError
from unit.progress import operator, progress

ROUTING = json.dumps({"epoch": 0, "partitions": 2, "assignment": [0, 1] * 4, "whole_bins": []})


def controller(**answers: Any) -> Controller:
    """A controller of a query that gives only these answers."""
    link: Any = SimpleNamespace(
        id="a-query", name=None, routing=lambda: ROUTING, has_begun=lambda: False, **answers
    )
    return Controller(link)


@pytest.mark.parametrize(
    ("place_on", "advice"),
    [("12", r"give a list of ids: place_on=\['12'\]"), ([1, "2"], r"give ids as text: place_on=\['1', '2'\]")],
)
def test_executors_are_named_by_a_list_of_texts(place_on, advice):
    this = controller()
    plan = Fluid().plan(this.routing(), this.routing().balanced(4))
    for act in (
        lambda: this.submit(plan, place_on=place_on),
        lambda: this.rescale(4, place_on=place_on),
        lambda: this.rebalance(by="bins", place_on=place_on),
        lambda: this.drain("1", place_on=place_on),
    ):
        with pytest.raises(ConfigurationError, match=advice) as refused:
            act()
        assert (refused.value.condition, refused.value.parameters["name"]) == ("INVALID_VALUE", "place_on")


def steps_within(seconds: float, prepare: bool, epochs: list[dict[str, Any]]) -> int:
    """Steps of a plan that moves four bins of a megabyte each, within a budget."""
    this = controller(
        statistics=lambda: None,
        recent_progress=lambda: epochs,
        task_slots=lambda: 1,
        earliest_epoch=lambda plan, *, prepare: None,
    )
    bounded = Bounded(AllAtOnce(), pause_budget_s=seconds, bin_bytes=[1_000_000] * 8)
    return len(this.plan(4, strategy=bounded, prepare=prepare).steps)


def adopted(number: int, ms: int, prepared: int) -> dict[str, Any]:
    counts = {"binshiftBinsAdopted": 4, "binshiftBinsPrepared": prepared, "binshiftRowsAdopted": 100}
    metrics = counts | {"binshiftBytesAdopted": 1_000_000_000, "binshiftAdoptMs": ms}
    return progress(number, operators=[operator(**metrics)])


def test_a_step_without_copies_is_not_reckoned_by_the_rate_of_prepared_ones():
    prepared, sent = adopted(1, 100, 4), adopted(2, 100_000, 0)
    assert steps_within(0.05, True, [prepared]) == 1
    assert steps_within(0.05, False, [prepared]) == 2
    assert steps_within(0.05, True, [prepared, sent]) == 1
    assert steps_within(0.15, False, [prepared, sent]) == 4
    assert steps_within(0.15, True, [sent]) == 4


def test_a_bounded_plan_says_why_the_bytes_are_not_known(monkeypatch):
    bounded = Bounded(Batched(4), max_bytes_per_step=10)
    with pytest.raises(PlanError, match=r"no epoch in this run; feed it data.*bin_bytes=") as refused:
        controller(statistics=lambda: None).plan(4, strategy=bounded)
    assert refused.value.condition == "BYTES_UNKNOWN"
    monkeypatch.setattr("binshift.controller.Controller._sizes", lambda *_: None)
    with pytest.raises(PlanError, match="trackTotalNumberOfRows is off; restart it") as refused:
        controller(statistics=lambda: b"counted").plan(4, strategy=bounded)
    assert refused.value.condition == "BYTES_UNKNOWN"
