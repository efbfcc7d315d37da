"""That the API keeps its word: it is the one that is listed, old names warn, errors link to their page."""

import re
import sys
import tomllib
from datetime import UTC, datetime
from importlib import import_module

import pytest

import binshift
import binshift.inspect
from binshift import Batched, Bounded, Fluid, MigrationPlan, PlanError, RoutingTable
from binshift.autoscaling import Action, Cluster, Decision, ScalingSettings
from binshift.deprecations import OLD_NAMES
from binshift.errors import SITE
from binshift.inspect import Family, Field, Operator, SparkType, Store, TypeKind
from binshift.planning.targets import balanced_by_load
from devtools.pages import with_anchors
from public_api import FILE, listing
from unit.test_docs import ROOT, SCALA, raised


def test_the_public_api_is_the_one_that_is_listed():
    now, listed = listing().splitlines(), FILE.read_text().splitlines()
    gone = [line for line in listed if line not in now]
    new = [line for line in now if line not in listed]
    assert (gone, new) == ([], []), (
        "the public API has changed; docs/stability.md says how it may: keep the old name with a "
        "DeprecationWarning, say it in the changelog, and run `python tests/public_api.py`"
    )


@pytest.mark.parametrize("method", ["plan", "rescale"])
@pytest.mark.parametrize(("old", "value"), [("partitions", 8), ("assignment", [0, 1, 2])])
def test_an_argument_may_be_given_by_its_old_name_and_warns(method, old, value):
    call = getattr(object.__new__(binshift.Controller), method)
    # It gets as far as to ask a query, of which there is none.
    text = rf"{method}\({old}=...\) is deprecated and will be gone in binshift 0."
    with pytest.warns(DeprecationWarning, match=text) as said, pytest.raises(AttributeError, match="_link"):
        call(**{old: value})
    assert [w.filename for w in said] == [__file__]
    with pytest.warns(DeprecationWarning, match=text), pytest.raises(TypeError, match="multiple values"):
        call(4, **{old: value})
    with pytest.raises(TypeError, match="unexpected keyword"):
        call(to=4, **{old: value})


def test_names_that_have_moved_are_found_at_their_old_place_and_warn():
    sys.modules.pop("binshift.strategies", None)
    with pytest.warns(DeprecationWarning, match=r"strategies is deprecated and .* write binshift.Batched"):
        old = import_module("binshift.strategies")
    assert all(getattr(old, name) is getattr(binshift, name) for name in old.__all__)
    moved = {name.partition(".")[2] for name in OLD_NAMES if name.startswith("binshift.")} - {"strategies"}
    for name in moved:
        with pytest.warns(DeprecationWarning, match=f"write binshift.autoscaling.{name} instead") as said:
            assert getattr(binshift, name) is getattr(binshift.autoscaling, name)
        assert said[0].filename == __file__
    assert moved & {*dir(binshift), *binshift.__all__} == set()


def test_an_old_name_is_gone_when_the_version_has_come_that_it_names():
    now = tuple(map(int, binshift.__version__.split(".")[:2]))
    assert [old for old, gone in OLD_NAMES.items() if tuple(map(int, gone.split("."))) <= now] == []
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert [old for old in OLD_NAMES if old.partition("(")[2] and f"`{old}`" not in changes] == []


def test_every_error_links_to_its_row_in_the_documentation():
    page = with_anchors((ROOT / "docs/errors.md").read_text())
    anchors = re.findall(r'<a id="([\w.]+)"></a>', page)
    assert len(anchors) == len(set(anchors))
    links = {getattr(binshift, kind)("m", condition=condition).url for condition, kind in raised()}
    assert links == {f"{SITE}/errors.html#{anchor}" for anchor in anchors if "." in anchor}
    assert {a for a in anchors if "." not in a} == {
        n for n in binshift.__all__ if n.endswith(("Error", "Timeout"))
    }
    error = PlanError("m", condition="PLAN_OUTDATED")
    assert error.__notes__ == [f"See {SITE}/errors.html#PlanError.PLAN_OUTDATED"]
    assert str(error) == "m"


def test_the_jvm_and_the_package_name_the_same_site():
    assert re.findall(r'val Site = "(.*)"', SCALA) == [SITE]
    assert SCALA.count('See $Site/errors.html#$name"') == 1
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Documentation"] == SITE


def test_versions_are_shown_of_all_that_takes_part(monkeypatch, capsys):
    binshift.show_versions()
    shown = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert shown["binshift"] == binshift.__version__
    assert shown["pyspark"].split(".")[:2] == ["4", "3"]
    assert re.match(r"(17|21)[.\d]*", shown["Java"])
    assert re.match(r"Spark 4\.\d", shown["jars"])
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    binshift.show_versions()
    assert "/nowhere/bin/java does not run" in capsys.readouterr().out


LONG = SparkType("long", kind=TypeKind.FIXED, arrow=None)
STRUCT = SparkType(
    "struct", kind=TypeKind.STRUCT, arrow=None, fields=tuple(Field(f"column_{i}", type=LONG) for i in range(30))
)
FAMILY = Family("default", key=STRUCT, value=STRUCT)
STORE = Store("default", families=(FAMILY,) * 9, has_families=True)
SIZED = Bounded(
    Batched(64, gap=2),
    max_bytes_per_step=10**9,
    pause_budget_s=0.25,
    bin_bytes=[10**6] * 1024,
    bytes_per_s=5e7 / 3,
)
BIG = RoutingTable(4, tuple(range(4)) * 256)
PLAN: MigrationPlan = Fluid().plan(BIG, BIG.balanced(200))


STATUS = binshift.MigrationStatus(
    binshift.MigrationState.RUNNING,
    steps_done=1,
    steps_total=4,
    next_epoch=9,
    committed_epoch=8,
    message="running: 1 of 4 steps done; 900 copies of bins are awaited; " * 3,
)
EPOCH = binshift.EpochProgress(
    "q" * 36,
    run_id="r" * 36,
    epoch=7,
    started_at=datetime.now(UTC),
    duration_s=1 / 3,
    input_rows=10,
    partitions=4,
    state_rows=5,
    state_rows_updated=3,
    state_memory_bytes=1,
    metrics={"m": 1.0},
)
CONVERTED = binshift.ConversionReport(
    "s3://bucket/orders",
    output="s3://bucket/orders-rocksdb",
    to="rocksdb",
    provider="a.B",
    epoch=8,
    uncommitted_epochs=1,
    partitions_before=4,
    partitions=4,
    stores=("count",),
    needed=True,
)
DECIDED = Decision(1 / 3, action=Action.RESCALE, current=2, desired=4, reason="it is behind " * 20)
TIMED = binshift.StepTiming(1, epoch=8, bins=256, partitions=8, duration_s=1 / 3, bytes=10**9, adopt_s=2 / 3)


@pytest.mark.parametrize(
    ("thing", "begins"),
    [
        (BIG, "<RoutingTable: 1024 bins in 4 partitions"),
        (PLAN, "<MigrationPlan: 4 -> 200 partitions"),
        (PLAN.steps[0], "<Step: 1 moves"),
        (SIZED, "Bounded(strategy=Batched(bins_per_step=64, gap=2), max_bytes_per_step=1000000000"),
        (Bounded("fluid", pause_budget_s=0.25), "Bounded(strategy=Fluid(gap=0), pause_budget_s=0.25)"),
        (balanced_by_load(BIG, [1 / 3] * 1024, partitions=9), "<LoadTarget: 4 -> 9 partitions"),
        (
            ScalingSettings(min_partitions=2, max_partitions=9, window=6),
            "ScalingSettings(min_partitions=2, max_",
        ),
        (Cluster(8, executors=4), "Cluster(slots=8, executors=4)"),
        (DECIDED, "<Decision: rescale from 2 to 4 partitions: it is behind"),
        (STATUS, "<MigrationStatus: running: 1 of 4 steps done; 900 copies"),
        (EPOCH, "<EpochProgress: epoch 7, 10 rows, 4 partitions, 333 ms>"),
        (CONVERTED, "<ConversionReport: s3://bucket/orders (B, epoch 8) would be converted to"),
        (TIMED, "StepTiming(step=1, epoch=8, bins=256"),
        (binshift.EpochLog(), "<EpochLog: 0 epochs>"),
        (STRUCT, "<SparkType: struct<column_0: long, column_1: long"),
        (LONG, "<SparkType: long>"),
        (STRUCT.fields[0], "<Field: column_0, long>"),
        (FAMILY, "<Family: default, 30 columns of keys and 30 of values>"),
        (STORE, "<Store: default, 9 families>"),
        (Operator(0, name="stateStoreSave", stores=(STORE,)), "<Operator: 0, stateStoreSave, stock, stores "),
    ],
    ids=lambda x: "" if isinstance(x, str) else type(x).__name__,
)
def test_what_a_shell_shows_of_a_value_fits_on_a_line(thing, begins):
    assert repr(thing).startswith(begins)
    assert len(repr(thing)) <= 100
    assert "\n" not in repr(thing)
