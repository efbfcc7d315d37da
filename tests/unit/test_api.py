"""Rules that the whole public API keeps, and the types that the target of a plan can have."""

import collections.abc
import importlib
import inspect
import pickle
import pkgutil
from collections import Counter
from enum import Enum
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import binshift
import binshift.inspect
from binshift import (
    Batched,
    BinshiftError,
    Bounded,
    Fluid,
    LoadTarget,
    MigrationPlan,
    Move,
    OnDemand,
    Optimized,
    PlanError,
    RoutingTable,
)
from binshift.planning.placement import Placement
from binshift.planning.targets import balanced_by_load, table_of

#: Positional parameters, where there are several: a table is its partitions and owners, a move is as in JSON.
PLACES = {"RoutingTable": ["partitions", "assignment"], "Move": ["bin", "source", "target"]}
#: Users don't construct these; `open`, `attach` and `submit` return them.
MADE = {"Checkpoint", "Controller", "Migration"}
#: Pure functions of two tables; the older table is the first argument.
IN_ORDER = {"Strategy.plan", *(f"{s}.plan" for s in ("AllAtOnce", "Batched", "Bounded", "Fluid", "OnDemand", "Optimized"))}  # fmt: skip  # noqa: E501


def public_callables():
    for module in (binshift, binshift.autoscaling, binshift.inspect):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                if name not in MADE | {"Strategy"} and not issubclass(thing, Exception | Enum):
                    yield name, thing.__init__
                for method, function in inspect.getmembers(thing, inspect.isroutine):
                    own = inspect.unwrap(function)
                    if not method.startswith("_") and str(getattr(own, "__module__", "")).startswith(
                        "binshift"
                    ):
                        yield f"{name}.{method}", function
            elif inspect.isfunction(thing):
                yield name, thing


@pytest.mark.parametrize(
    ("name", "function"), list(public_callables()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_what_comes_behind_the_first_argument_is_given_by_name(name, function):
    places = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self"
    ]
    assert places == PLACES.get(name, ["source", "target"] if name in IN_ORDER else places[:1])


#: Names that modules import only for annotations.
TYPES: dict[str, Any] = {
    **vars(collections.abc),
    **vars(binshift),
    "Figure": object,
    "SparkSession": SparkSession,
    "StreamingQuery": StreamingQuery,
    "pd": SimpleNamespace(DataFrame=object),
}


def annotated():
    """The annotations of all public functions, methods, properties and fields."""
    for name, function in public_callables():
        yield name, get_type_hints(inspect.unwrap(getattr(function, "__func__", function)), localns=TYPES)
    for module in (binshift, binshift.autoscaling, binshift.inspect):
        for thing in (t for name in module.__all__ if inspect.isclass(t := getattr(module, name))):
            yield thing.__name__, get_type_hints(thing, localns=TYPES)
            for name, member in inspect.getmembers(thing, lambda m: isinstance(m, property)):
                if not name.startswith("_"):
                    yield f"{thing.__name__}.{name}", get_type_hints(member.fget, localns=TYPES)


def classes(hint):
    """The classes of binshift that occur in an annotation, at any depth."""
    if inspect.isclass(hint) and hint.__module__.startswith("binshift"):
        yield hint
    for part in get_args(hint):
        yield from classes(part)


def test_what_is_public_gives_and_takes_nothing_that_is_not():
    public = {getattr(m, n) for m in (binshift, binshift.autoscaling, binshift.inspect, binshift.savepoints)
              for n in m.__all__ if inspect.isclass(getattr(m, n))}  # fmt: skip
    hidden = {
        f"{place}: {kind.__name__}"
        for place, hints in annotated()
        for name, hint in hints.items()
        if not name.startswith("_")
        for kind in classes(hint)
        if kind not in public
    }
    assert hidden == set()


def test_no_two_modules_have_a_public_name_of_their_own_for_two_things():
    found = Counter(
        name
        for module in pkgutil.walk_packages(binshift.__path__, "binshift.")
        if not module.ispkg and not module.name.startswith("binshift.cli.")
        for name, thing in vars(importlib.import_module(module.name)).items()
        if name in getattr(importlib.import_module(module.name), "__all__", ())
        and getattr(thing, "__module__", module.name) == module.name
    )
    assert [name for name, times in found.items() if times > 1] == []


def test_a_value_with_a_field_in_the_wrong_place_is_not_made():
    with pytest.raises(TypeError, match="positional"):
        MigrationPlan(SOURCE, (), "x", 0, True)  # type: ignore[misc]


SOURCE = RoutingTable(2, (0, 1) * 4)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (4, SOURCE.balanced(4)),
        (RoutingTable(3, (0, 1) * 4), RoutingTable(3, (0, 1) * 4)),
        (LoadTarget(SOURCE.balanced(3), before=(), after=(), bound=0.0, moves=2, hot=()), SOURCE.balanced(3)),
        ([0] * 7 + [2], RoutingTable(3, (0,) * 7 + (2,))),
        ((0,) * 8, RoutingTable(1, (0,) * 8)),
    ],
    ids=["number", "table", "load", "list", "tuple"],
)
def test_a_plan_leads_to_a_number_a_table_a_target_by_load_or_owners(to, expected):
    assert table_of(to, SOURCE) == expected


@pytest.mark.parametrize("to", [0, 9, True, 2.0, None, "3", b"3", "01010101", [], [0, -1], [0, "1"], {0: 1}])
def test_what_is_no_target_is_refused(to):
    with pytest.raises(PlanError):
        table_of(to, SOURCE)


TABLE = RoutingTable(2, (0, 1) * 4)


@pytest.mark.parametrize(
    ("act", "condition", "parameters"),
    [
        (lambda: Batched(0), "INVALID_VALUE", {"name": "bins_per_step", "value": 0}),
        (lambda: Optimized(True), "INVALID_VALUE", {"name": "bins_per_pair", "value": True}),
        (lambda: Fluid(gap=-1).plan(TABLE, TABLE), "INVALID_VALUE", {"name": "gap", "value": -1}),
        (lambda: TABLE.balanced(0), "INVALID_VALUE", {"name": "partitions", "value": 0}),
        (lambda: TABLE.without([0, 1]), "INVALID_VALUE", {"name": "partitions", "value": (0, 1)}),
        (lambda: RoutingTable(2, (0, 2)), "INVALID_VALUE", {"name": "assignment", "value": 2}),
        (lambda: RoutingTable(2, ()), "INVALID_VALUE", {"name": "bins", "value": 0}),
        (lambda: Move(3, 1, 1), "PLAN_DOES_NOT_FIT", {"bin": 3}),
        (lambda: Move(3, 1, -1), "INVALID_VALUE", {"name": "target", "value": -1}),
        (lambda: table_of([-1], TABLE), "INVALID_VALUE", {"name": "assignment", "value": -1}),
        (lambda: table_of([0], TABLE).moves_to(TABLE), "BINS_ARE_FIXED", {"bins": 1}),
        (lambda: balanced_by_load(TABLE, [1.0]), "BINS_ARE_FIXED", {"bins": 8}),
        (
            lambda: balanced_by_load(TABLE, [1.0] * 8, partitions=1, max_moves=2),
            "TOO_FEW_MOVES",
            {"max_moves": 2, "needed": 4},
        ),
        (
            lambda: Bounded(Fluid(), max_bytes_per_step=0),
            "INVALID_VALUE",
            {"name": "max_bytes_per_step", "value": 0},
        ),
        (lambda: Bounded(Fluid()), "INVALID_VALUE", {"name": "max_bytes_per_step", "value": None}),
        (
            lambda: Bounded(OnDemand(), pause_budget_s=1),
            "INVALID_VALUE",
            {"name": "strategy", "value": OnDemand()},
        ),
        (lambda: Bounded(Fluid(), pause_budget_s=1).plan(TABLE, TABLE), "BYTES_UNKNOWN", {}),
        (
            lambda: Bounded(Fluid(), pause_budget_s=1, bin_bytes=[1]).plan(TABLE, TABLE),
            "BINS_ARE_FIXED",
            {"bins": 8},
        ),
    ],
)
def test_what_is_refused_has_a_condition_and_the_values_that_are_wrong(act, condition, parameters):
    with pytest.raises(PlanError) as refused:
        act()
    assert (refused.value.condition, refused.value.parameters) == (condition, parameters)


def test_errors_have_conditions_and_the_values_that_they_name():
    kinds = [k for k in vars(binshift.errors).values() if inspect.isclass(k) and issubclass(k, BinshiftError)]
    assert len({k.condition for k in kinds}) == len(kinds) == 9
    with pytest.raises(PlanError) as refused:
        Placement(("1", "2"), (("1",),)).require_live(["3"])
    # A pool of processes pickles errors to send them.
    for error in (refused.value, pickle.loads(pickle.dumps(refused.value))):
        assert (error.condition, error.executor, error.parameters) == (
            "EXECUTOR_NOT_ALIVE", "3", {"executor": "3"},
        )  # fmt: skip
        assert str(error) == "executor '3' is not alive; alive are: 1, 2"
    plain = binshift.MigrationTimeout("late")
    assert (plain.condition, plain.migration_id, plain.timeout) == ("TIMEOUT", None, None)
