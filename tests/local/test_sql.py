"""The catalog `binshift`: its tables say what the Python API says, and its procedures do what it does."""

from datetime import datetime

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from binshift import Batched, MigrationPlan, PlanError
from binshift.control.directory import open_directory
from binshift.errors import SITE
from binshift.planning.limits import Deadline
from binshift.session import PROVIDER
from harness import STOCK, assert_same_results, until
from local.queries import count_by_key


@pytest.fixture
def run(stream):
    started = stream(count_by_key).start(name="orders")
    started.run(0)
    return started


def call(run, procedure, **arguments):
    """The rows of a procedure."""
    names = ", ".join(f"{name} => :{name}" for name in arguments)
    return [
        r.asDict(recursive=True)
        for r in run.spark.sql(f"CALL binshift.system.{procedure}({names})", arguments).collect()
    ]


def refusal(run, procedure, **arguments):
    with pytest.raises(AnalysisException) as refused:
        call(run, procedure, **arguments)
    return refused.value


def rows(run, table):
    found = run.spark.sql(f"SELECT * FROM binshift.system.{table} WHERE query = 'orders'").collect()
    return [{name: value for name, value in r.asDict().items() if name != "query"} for r in found]


@pytest.mark.few
def test_a_query_is_rescaled_and_followed_in_sql(stream):
    run, oracle = (stream(count_by_key, provider, provider=provider) for provider in (PROVIDER, STOCK))
    for query in (run, oracle):
        query.start(name="orders" if query is run else None)
        query.run(0)
    id_ = str(run.query.id)
    controller = run.attach()
    steps = call(run, "plan", query="orders", partitions=5, strategy="batched:20")
    plan = controller.plan(5, strategy=Batched(20))
    assert [(s["step"], s["partitions"], s["bins_moved"]) for s in steps] == [
        (i, s.partitions, len(s.moves)) for i, s in enumerate(plan.steps, 1)
    ]
    assert [[tuple(m.values()) for m in s["moves"]] for s in steps] == [
        [(m.bin, m.source, m.target) for m in s.moves] for s in plan.steps
    ]
    assert rows(run, "migrations") == []
    [submitted] = call(run, "rescale", query=id_, partitions=5, strategy="batched:20", prepare=False)
    migration = controller.migration()
    assert migration.plan == plan
    assert submitted == {
        "migration_id": migration.id,
        "partitions": 5,
        "bins_moved": len(plan.moves),
        "steps": len(plan.steps),
    }
    again = refusal(run, "rescale", query="orders", partitions=3)
    assert again.getCondition() == "MIGRATION_UNDER_WAY"
    assert again.getMessageParameters()["migration_id"] == migration.id
    assert [(r["migration_id"], r["steps_done"], r["steps_total"]) for r in rows(run, "migrations")] == [
        (migration.id, 0, len(plan.steps))
    ]
    for query in (run, oracle):
        query.run(1, 2, 3, 4)
    assert migration.wait(60).steps == len(plan.steps)
    assert [(r["state"], r["steps_done"]) for r in rows(run, "migrations")] == [("finished", len(plan.steps))]
    [facts] = rows(run, "queries")
    assert facts == {
        "query_id": id_,
        "run_id": str(run.query.runId),
        "checkpoint": f"file:{run.checkpoint}",
        "epoch": 4,
        "bins": 64,
        "partitions": 5,
        "migration_id": None,
        "unanswered": None,
    }
    table = controller.routing()
    assert sorted((r["epoch"], r["bin"], r["partition"]) for r in rows(run, "routing")) == [
        (table.epoch, b, p) for b, p in enumerate(table.assignment)
    ]
    stats = [{"query_id": id_, "epoch": 4, **r} for r in controller.stats().to_pylist()]
    assert sorted(rows(run, "stats"), key=lambda r: r["bin"]) == stats
    told = [(r["epoch"], r["migration_id"], r["step"], r["bins_moved"]) for r in rows(run, "history")]
    assert told == [
        (r["epoch"], r["migration_id"], r["step"], r["bins_moved"]) for r in controller.history().to_pylist()
    ]
    assert_same_results(run, oracle)


def test_other_procedures_do_what_the_controller_does(run):
    assert call(run, "rebalance", query="orders", prepare=False)[0]["steps"] == 0
    [at_once] = call(run, "rescale", query="orders", partitions=4, prepare=False, start_epoch=9)
    # As Python has it: rows on demand are one step, a quarter of the bins each would be two.
    assert at_once["steps"] == 1
    assert run.attach().migration().plan.on_demand
    call(run, "cancel", query="orders")
    [submitted] = call(run, "rescale", query="orders", partitions=4, place_on=["driver"], start_epoch=9)
    assert call(run, "cancel", query="orders") == [{"migration_id": submitted["migration_id"]}]
    assert run.attach().migration() is None
    plan = run.attach().plan(3)
    [other] = call(run, "submit", query="orders", plan=plan.to_json(), id="mine")
    # A client that did not get the answer asks again.
    assert call(run, "submit", query="orders", plan=plan.to_json(), id="mine") == [other]
    assert run.attach().migration().plan == plan
    assert {r.namespace for r in run.spark.sql("SHOW NAMESPACES IN binshift").collect()} == {"system"}
    tables = {r.tableName for r in run.spark.sql("SHOW TABLES IN binshift.system").collect()}
    assert tables == {"queries", "routing", "stats", "history", "migrations"}


def states(run):
    return {r["migration_id"]: r["state"] for r in rows(run, "migrations")}


def test_a_migration_is_undone_by_its_deadline_and_by_hand(run):
    before = run.attach().routing()
    limits = {"deadline": "2 epochs", "on_timeout": "rollback", "guard_longest_epoch_s": 600.0}
    how = {"query": "orders", "partitions": 4, "strategy": "batched:8", "prepare": False}
    [late] = call(run, "rescale", **how, **limits)
    epochs = iter(range(1, 100))
    assert until(lambda: run.run(next(epochs)) or states(run)[late["migration_id"]] == "rolled-back")
    assert states(run) == {late["migration_id"]: "rolled-back", f"{late['migration_id']}-rollback": "finished"}
    reasons = {r["migration_id"]: r["stopped_because"] for r in rows(run, "migrations")}
    assert reasons == {
        late["migration_id"]: "its deadline of 2 epochs passed after 1 of 4 steps",
        f"{late['migration_id']}-rollback": None,
    }
    assert run.attach().routing() == before
    [done] = call(run, "rescale", **how)
    assert until(lambda: run.run(next(epochs)) or states(run)[done["migration_id"]] == "finished")
    assert run.attach().routing().partitions == 4
    # Asking twice has no further effect, by the default either.
    for _ in range(2):
        assert call(run, "rollback", query="orders") == [{"migration_id": done["migration_id"]}]
    assert until(lambda: run.run(next(epochs)) or states(run)[done["migration_id"]] == "rolled-back")
    assert run.attach().routing() == before
    refused = refusal(run, "rollback", query="orders", migration_id="unheard-of")
    assert refused.getCondition() == "ROLLBACK_IMPOSSIBLE"
    expected = {r.k: r["count"] for r in run.batch().groupBy("k").count().collect()}
    assert {key[0]: value[0] for key, value in run.state()} == expected


def test_deadlines_are_read_as_in_python(run):
    right = ("600", "0.5s", " 10 Min ", "1 minute", "2 h", "2 Hours", "30 epochs", "1 epoch")
    for text in (*right, "1e3", "5 days", "0 s", "-5 s", "1.5 epochs", "", "99999999999 epochs"):
        try:
            meant = Deadline.of(text)
        except PlanError:
            refused = refusal(run, "rescale", query="orders", partitions=4, deadline=text)
            assert (refused.getCondition(), refused.getMessageParameters()["value"]) == ("INVALID_VALUE", text)
        else:
            call(run, "rescale", query="orders", partitions=4, deadline=text, start_epoch=9)
            told = open_directory(str(run.checkpoint)).migration().limits
            assert meant.as_dict().items() <= told["deadline"].items()
            assert told["on_timeout"] == "finish"
            call(run, "cancel", query="orders")


def test_refusals_have_the_conditions_of_python(run):
    for procedure, arguments, condition, parameters in (
        ("plan", {"partitions": 0}, "INVALID_VALUE", {"name": "partitions", "value": "0"}),
        ("rescale", {"partitions": 65}, "INVALID_VALUE", {"name": "partitions", "value": "65"}),
        (
            "rescale",
            {"partitions": 4, "strategy": "eager"},
            "INVALID_VALUE",
            {"name": "strategy", "value": "eager"},
        ),
        ("rescale", {"partitions": 4, "place_on": ["7"]}, "EXECUTOR_NOT_ALIVE", {"executor": "7"}),
        ("rescale", {"partitions": 4, "start_epoch": 0}, "EPOCH_PASSED", {"epoch": "0", "earliest": "1"}),
        (
            "rescale",
            {"partitions": 4, "start_epoch": -1},
            "INVALID_VALUE",
            {"name": "start_epoch", "value": "-1"},
        ),
        ("rebalance", {"by": "rows"}, "BY_LOAD_IN_PYTHON", {"name": "by", "value": "rows"}),
        ("drain", {"executor": "driver"}, "NO_OTHER_EXECUTOR", {"executor": "driver"}),
        (
            "rescale",
            {"partitions": 4, "deadline": "soon"},
            "INVALID_VALUE",
            {"name": "deadline", "value": "soon"},
        ),
        (
            "rescale",
            {"partitions": 4, "on_timeout": "rollback"},
            "INVALID_VALUE",
            {"name": "on_timeout", "value": "rollback"},
        ),
        (
            "rebalance",
            {"deadline": "5 s", "on_timeout": "explode"},
            "INVALID_VALUE",
            {"name": "on_timeout", "value": "explode"},
        ),
        (
            "rebalance",
            {"guard_longest_epoch_s": 0.0},
            "INVALID_VALUE",
            {"name": "guard_longest_epoch_s", "value": "0.0"},
        ),
        ("cancel", {}, "NO_MIGRATION", {}),
        ("rollback", {}, "NO_MIGRATION", {}),
        ("submit", {"plan": "nonsense"}, "PLAN_UNREADABLE", {}),
        ("submit", {"plan": "{}", "id": "../a"}, "INVALID_VALUE", {"name": "id", "value": "../a"}),
    ):
        refused = refusal(run, procedure, query="orders", **arguments)
        told = {k: v for k, v in refused.getMessageParameters().items() if k != "binshift"}
        assert (refused.getCondition(), told) == (condition, parameters), (procedure, arguments)
        kind = "MigrationError" if procedure in ("cancel", "rollback") else "PlanError"
        assert f"See {SITE}/errors.html#{kind}.{condition}" in str(refused)
        assert run.attach().migration() is None


def test_a_query_that_is_not_there_and_a_change_of_the_catalog_are_refused(run):
    assert refusal(run, "plan", query="nobody", partitions=4).getCondition() == "QUERY_NOT_FOUND"
    assert refusal(run, "plan", query=None, partitions=4).getCondition() == "INVALID_VALUE"
    with pytest.raises(AnalysisException) as refused:
        run.spark.sql("DROP TABLE binshift.system.queries")
    assert refused.value.getCondition() == "CATALOG_READ_ONLY"
    # Types are Spark's to check.
    for procedure, wrong in (
        ("plan", {"partitions": datetime(2026, 1, 1)}),
        ("rescale", {"partitions": 4, "place_on": "12"}),
    ):
        refused = refusal(run, procedure, query="orders", **wrong)
        assert refused.getCondition().startswith("DATATYPE_MISMATCH")


def test_scala_and_java_plan_submit_and_follow(run):
    jvm = run.spark._jvm.binshift.Binshift
    controller = jvm.attach(run.query._jsq)
    assert (controller.id(), controller.bins(), controller.partitions()) == (str(run.query.id), 64, 2)
    plan = controller.plan(4, "batched:16")
    assert MigrationPlan.from_json(plan.json()) == run.attach().plan(4, strategy=Batched(16))
    assert plan.toString() == "Plan: 2 -> 4 partitions, batched(16), 32 bins in 2 steps"
    migration = controller.submit(plan, False)
    assert run.attach().migration().id == migration.id()
    run.run(1, 2, 3)
    assert run.attach().routing() == MigrationPlan.from_json(plan.json()).target
    status = migration.status()
    assert (status.state(), status.stepsDone(), status.isOver()) == ("finished", 2, True)
    found = jvm.attach(run.spark._jsparkSession, "orders")
    assert list(found.assignment()) == list(run.attach().routing().assignment)
    migration.rollback()
    epochs = iter(range(4, 100))
    assert until(lambda: run.run(next(epochs)) or migration.status().isOver())
    assert (migration.status().state(), controller.partitions()) == ("rolled-back", 2)
    limited = controller.submit(controller.plan(4), True, "30 epochs", "rollback")
    assert open_directory(str(run.checkpoint)).migration().limits["on_timeout"] == "rollback"
    limited.cancel()
    with pytest.raises(Py4JJavaError) as refused:
        found.rescale(65)
    assert refused.value.java_exception.condition() == "INVALID_VALUE"
