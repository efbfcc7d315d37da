"""Everything public says which argument has the wrong type, and what to pass instead."""

import collections.abc
import inspect
import json
import math
import re
import types
from types import SimpleNamespace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import numpy as np
import pytest
from pyspark.sql import SparkSession

import binshift
import binshift.inspect
from binshift import (
    AllAtOnce,
    Batched,
    BinshiftError,
    Bounded,
    ConfigurationError,
    Controller,
    EpochLog,
    Fluid,
    Migration,
    OnDemand,
    Optimized,
    PlanError,
    RoutingTable,
    Strategy,
)
from unit.checkpoints import TWO, HandWritten
from unit.test_api import TYPES, public_callables

#: Any, so that mypy accepts calls with wrong types.
API: Any = binshift
PLAN = Fluid().plan(TWO, TWO.balanced(4))
#: Values that the library constructs and users only read.
RESULTS = {
    "AuditReport", "ConversionReport", "EpochProgress", "HotBin", "LoadTarget", "MigrationReport",
    "MigrationStatus", "Skew", "StepTiming", "Source", "Operator", "Store", "Family", "Field", "SparkType",
    "Encoder", "TypeKind", "Decision", "Change", "Observation", "Cluster",
}  # fmt: skip
#: Spark calls these, or the test has no instance to call them on.
OTHERS = {"EpochLog.onQueryStarted", "EpochLog.onQueryProgress", "EpochLog.onQueryTerminated", "Strategy.plan"}


class Junk:
    def __repr__(self):
        return "<Junk>"


JUNK = [Junk(), 42, 2.5, math.nan, "junk", b"junk", True, None, [Junk()], [1, "2"], {"a": 1}, Junk]


def controller() -> Any:
    """A controller of a query that answers every request."""
    answers = {
        "id": "a-query",
        "name": None,
        "poll_s": 0.01,
        "routing": lambda: json.dumps(
            {"epoch": 0, "partitions": 2, "assignment": TWO.assignment, "whole_bins": []}
        ),
        "placement": lambda: json.dumps({"executors": ["1", "2"], "partitions": [["1"], ["2"]]}),
        "progress": lambda _: json.dumps({"state": "finished", "steps_done": 0, "committed_epoch": 1}),
        "history": lambda _=None: "[]",
        "sample_keys": lambda _: 1,
        "hot_keys": lambda _: json.dumps({"keys": [], "epoch": 1}),
        "submit": lambda *_: "m-1",
        "task_slots": lambda: 1,
        "trigger_interval_ms": lambda: 1000,
        "reports_kept": lambda: 100,
        "recent_progress": list,
        "statistics": lambda: None,
        "last_progress": lambda: None,
        "earliest_epoch": lambda *_, prepare: None,
        "is_real_time": lambda: False,
        "is_active": lambda: True,
        "rollback": lambda _: None,
        "has_begun": lambda: True,
    }
    link: Any = SimpleNamespace(**answers)
    return Controller(link)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One instance of each class that has methods."""
    of_query = controller()
    checkpoint = str(HandWritten(tmp_path_factory.mktemp("arguments") / "checkpoint", TWO, committed=5).root)
    with binshift.inspect.open(checkpoint) as opened:
        strategies = [AllAtOnce(), Batched(2), Fluid(), OnDemand(), Optimized()]
        bounded = Bounded(Fluid(), max_bytes_per_step=5, bin_bytes=[1] * 8)
        things = [
            of_query,
            Migration(of_query, "m-1", PLAN),
            opened,
            TWO,
            PLAN,
            EpochLog(),
            bounded,
            *strategies,
        ]
        yield {type(t).__name__: t for t in things}


#: Valid arguments for parameters without a default; some functions have their own.
FITTING = {
    "assignment": (0, 1), "bin": 1, "bin_bytes": [1] * 8, "bins_per_step": 2, "builder": SparkSession.Builder(),
    "bytes_per_s": None, "callback": print, "checkpoint": "/nowhere", "cores": 1, "executor_id": "1",
    "key": {"k": 1}, "longest_epoch_s": 2.0, "max_partitions": 4, "min_partitions": 1, "moves": (),
    "now_s": 0.0, "observations": [], "partition": 1, "partitions": 2, "plan": PLAN, "query": "a-query",
    "rows": [], "source": TWO, "steps": (), "strategy": Fluid(),
    "settings": binshift.autoscaling.ScalingSettings(min_partitions=1, max_partitions=2),
    "target": TWO.balanced(4), "text": PLAN.to_json(), "to": 4,
}  # fmt: skip
FITTING_OF: dict[str, dict[str, Any]] = {
    "Bounded": {"max_bytes_per_step": 5},
    "MigrationPlan": {"strategy": "fluid"},
    "Move": {"source": 1, "target": 2},
    "RoutingTable": {"partitions": 1},
    "convert": {"to": "rocksdb"},
}


def fits(value, hint):
    """True if the annotation allows the value. Doesn't use the package's own check, which is under test."""
    origin, args = get_origin(hint), get_args(hint)
    kind = origin or hint
    if origin in (Union, types.UnionType):
        return any(fits(value, a) for a in args)
    if kind in (Any, object) or origin is collections.abc.Callable:
        return kind is not collections.abc.Callable or callable(value)
    if origin is Literal or kind is Strategy:
        return value in args
    if kind in (int, float) or value is True:
        allowed = {int: (42,), float: (42, 2.5), bool: (True,)}.get(kind, ())
        return any(value is a for a in allowed)
    if args and issubclass(kind, collections.abc.Iterable) and not issubclass(kind, collections.abc.Mapping):
        return False
    return isinstance(value, kind)


def parameters():
    """Each parameter of each public function: the function's name, the parameter, and its annotation."""
    for name, function in public_callables():
        if name.partition(".")[0] in RESULTS or name in OTHERS:
            continue
        hints = get_type_hints(inspect.unwrap(getattr(function, "__func__", function)), localns=TYPES)
        for p in inspect.signature(function).parameters.values():
            if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                yield pytest.param(name, p.name, hints[p.name], id=f"{name}-{p.name}")


def called(name, made):
    """The public function or bound method of this name."""
    owner, _, method = name.partition(".")
    for module in (binshift, binshift.autoscaling, binshift.inspect):
        if owner in module.__all__:
            thing = getattr(module, owner)
            return getattr(made.get(owner, thing), method) if method else thing
    raise AssertionError(name)


@pytest.mark.parametrize(("name", "parameter", "hint"), list(parameters()))
def test_an_argument_of_the_wrong_type_is_named_with_its_value(name, parameter, hint, made):
    function = called(name, made)
    needed = {p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty}
    fitting: dict[str, Any] = {n: a for n, a in FITTING.items() if n in needed} | FITTING_OF.get(name, {})
    if "controller" in needed:
        fitting["controller"] = made["Controller"]
    for junk in JUNK:
        if not fits(junk, hint):
            with pytest.raises(BinshiftError) as refused:
                function(**(fitting | {parameter: junk}))
            assert refused.value.condition == "INVALID_VALUE"
            shown = [repr(junk), *map(repr, junk if isinstance(junk, list) else ())]
            assert [s for s in shown if s in str(refused.value)], (junk, str(refused.value))


def test_a_check_does_not_hide_what_python_says_of_missing_and_unknown_arguments():
    with pytest.raises(TypeError, match=r"rescale\(\) missing 1 required positional argument: 'to'"):
        controller().rescale()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'now'"):
        controller().rescale(4, now=True)


LIST_OF_IDS = r"^place on 3 is impossible; give a list of ids: place_on=\['3'\]$"


@pytest.mark.parametrize(
    ("act", "advice"),
    [
        (
            lambda: API.attach(42),
            r"^query 42 is impossible; give the StreamingQuery that writeStream.start\(\)",
        ),
        (lambda: API.attach(None), r"^query None is impossible; give the StreamingQuery"),
        (lambda: API.attach("a", timeout="60"), r"^timeout '60' is impossible; give a number or None$"),
        (
            lambda: API.configure(None),
            r"^builder None is impossible; give a builder: binshift.configure\(",
        ),
        (lambda: API.configure(SparkSession), "active in a session that is there already$"),
        (lambda: controller().submit(4), "^plan 4 is impossible; give a MigrationPlan$"),
        (lambda: controller().rescale(4, prepare="no"), "^prepare 'no' is impossible; give True or False$"),
        (lambda: controller().rescale(4, place_on=3), LIST_OF_IDS),
        (lambda: controller().drain(3), r"^executor id 3 is impossible; give the executor's id as text.* '3'$"),
        (lambda: controller().rescale(4, strategy="quick"), "^strategy 'quick' is unknown; give one of all-at"),
        (
            lambda: controller().rescale(4, strategy=Fluid),
            r"; give a strategy, such as binshift.Batched\(16\), or",
        ),
        (
            lambda: controller().skew("heat"),
            "^by 'heat' is impossible; give 'rows' or 'bytes' or 'both' or 'bins'",
        ),
        (
            lambda: API.MigrationPlan(TWO, steps=[1], strategy="x"),
            r"^steps \[1\] is impossible; give a list of Steps$",
        ),
        (lambda: API.Fluid(gap="1"), "^gap '1' is impossible; give a whole number$"),
    ],
)
def test_an_error_says_what_to_give(act, advice):
    with pytest.raises((ConfigurationError, PlanError)) as refused:
        act()
    assert re.search(advice, str(refused.value))


def test_numbers_of_numpy_are_numbers(made):
    assert made["Migration"].wait(np.float32(5)).steps == 0
    assert made["RoutingTable"].bins_of(np.int64(1)) == (1, 3, 5, 7)
    assert made["RoutingTable"].without(np.array([1])).sizes() == (8, 0)


def test_an_iterator_is_left_as_it_is():
    assert binshift.epoch_table(iter([])).num_rows == 0


@pytest.mark.parametrize("name", ["fluid", "batched:2", "optimized:2", "all-at-once", "on-demand"])
def test_strategies_have_the_names_of_the_command_line(name):
    strategy: dict[str, Any] = {"fluid": Fluid(), "batched:2": Batched(2), "optimized:2": Optimized(2)}
    strategy |= {"all-at-once": AllAtOnce(), "on-demand": OnDemand()}
    assert controller().plan(4, strategy=name) == strategy[name].plan(TWO, TWO.balanced(4))
    if name != "on-demand":
        assert Bounded(name, max_bytes_per_step=1) == Bounded(strategy[name], max_bytes_per_step=1)


def test_a_table_of_a_list_is_that_of_a_tuple():
    assert API.RoutingTable(2, [0, 1]) == RoutingTable(2, (0, 1))
    assert hash(API.RoutingTable(2, [0, 1])) == hash(RoutingTable(2, (0, 1)))


def test_an_id_finds_a_query_as_a_text_does():
    with pytest.raises(ConfigurationError) as refused:
        API.attach(UUID(int=7))
    assert refused.value.condition == "QUERY_NOT_FOUND"
