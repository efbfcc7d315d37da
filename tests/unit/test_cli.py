"""The command line on checkpoints written by hand."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import binshift
from binshift import AllAtOnce, Fluid, MigrationPlan, MigrationState, OnDemand, RoutingTable
from binshift.cli import running
from binshift.cli.exits import EXIT_CODES
from binshift.cli.following import Follower
from binshift.cli.main import cli
from binshift.control.directory import open_directory
from binshift.session import PROVIDER, PROVIDER_KEY, STOCK_PROVIDER
from harness import until
from unit.checkpoints import Answering, HandWritten

TWO = RoutingTable(2, (0, 1) * 4)


@pytest.fixture
def checkpoint(tmp_path):
    return HandWritten(tmp_path / "checkpoint", TWO, committed=5)


@pytest.fixture
def run(checkpoint):
    """Runs a command on the checkpoint, put behind the command's name; checks its exit code."""

    def call(command, *arguments, code=0):
        result = CliRunner().invoke(cli, [command, str(checkpoint.root), *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result

    return call


def test_status_tells_the_table_and_that_nothing_is_under_way(run):
    out = run("status").stdout
    assert "8 bins in 2 partitions of 4 to 4 bins, from epoch 0 on" in out
    assert "epochs       5 committed, 5 logged" in out
    assert "stateStoreSave (binned)" in out
    assert "none under way" in out
    facts = json.loads(run("status", "--json").stdout)
    assert facts["routing"] == {"epoch": 0, "partitions": 2, "fewest_bins": 4, "most_bins": 4}
    assert (facts["migration"], facts["requests"], facts["spark_version"]) == (None, 0, "4.3.0")


def test_jar_prints_the_path_that_spark_submit_takes():
    result = CliRunner().invoke(cli, ["jar"])
    assert (result.exit_code, result.stdout) == (0, f"{binshift.jar_path()}\n")


def test_status_follows_a_migration_that_is_under_way(run, checkpoint):
    plan = Fluid().plan(TWO, TWO.balanced(4))
    checkpoint.under_way(plan)
    checkpoint.take(plan, 6, steps=3)
    migration = json.loads(run("status", "--json").stdout)["migration"]
    assert (migration["id"], migration["steps_done"], migration["steps"]) == ("m-1", 3, 4)
    assert "m-1: 2 -> 4 partitions, fluid, 3 of 4 steps done" in run("status").stdout


def test_an_entry_whose_epoch_was_not_logged_is_not_in_force(run, checkpoint):
    checkpoint.enter(TWO.balanced(4), 6)
    assert json.loads(run("status", "--json").stdout)["routing"]["partitions"] == 2
    checkpoint.commit(6)
    assert json.loads(run("status", "--json").stdout)["routing"]["partitions"] == 4


def test_status_asks_the_running_query_if_that_is_wanted(run, checkpoint):
    with Answering(checkpoint, lambda r: {"result": {"progress": None, "routing": {"epoch": 0}}}) as driver:
        facts = json.loads(run("status", "--json", "--live", 60).stdout)
    assert facts["live"] == {"progress": None, "routing": {"epoch": 0}}
    assert [r["kind"] for r in driver.seen] == ["status"]


def test_a_query_that_does_not_answer_is_a_timeout_and_its_request_is_taken_back(run, checkpoint):
    result = run("status", "--live", 0.05, code=EXIT_CODES[binshift.MigrationTimeout])
    assert "did not answer in 0.05 s" in result.stderr
    assert checkpoint.requests() == []


def test_history_has_the_steps_that_were_committed(run, checkpoint):
    plan = Fluid().plan(TWO, TWO.balanced(4))
    checkpoint.take(plan, 6, steps=2)
    checkpoint.enter(TWO.balanced(4), 99, {"migration_id": "m-1", "index": 2, "steps": 4, "strategy": "fluid",
                                          "moves": 1, "opening": False})  # fmt: skip
    checkpoint.enter(TWO, 5, {"migration_id": "m-1", "index": -1, "steps": 4, "strategy": "fluid", "moves": 0,
                              "opening": True})  # fmt: skip
    rows = json.loads(run("history", "--json").stdout)
    assert [(r["epoch"], r["step"], r["steps"], r["bins_moved"]) for r in rows] == [(6, 1, 4, 1), (7, 2, 4, 1)]
    assert rows[0]["written_at"] == "2026-01-01T00:00:00.006000+00:00"
    head, *lines = run("history").stdout.splitlines()
    assert head.split()[:3] == ["epoch", "partitions", "bins_moved"]
    assert len(lines) == 2


def test_a_plan_is_printed_and_nothing_happens(run, checkpoint):
    out = run("plan", "--partitions", 4, "--strategy", "optimized:1").stdout
    assert out.startswith("MigrationPlan: 2 -> 4 partitions, optimized(1)\n  steps: 2")
    plan = MigrationPlan.from_json(
        run("plan", "--partitions", 4, "--json", "--gap", 1, "--strategy", "fluid").stdout
    )
    assert (plan.target, plan.gap) == (TWO.balanced(4), 1)
    assert checkpoint.requests() == []


def test_a_plan_goes_to_a_file_and_from_there_to_the_query(run, checkpoint, tmp_path):
    file = tmp_path / "plan.json"
    run("plan", "--partitions", 4, "--output", file)
    out = run("plan", "--from", file, "--submit", "--json", "--start-epoch", 9, "--no-prepare").stdout
    (request,) = checkpoint.requests()
    assert request == {
        "format": 1,
        "id": json.loads(out)["request"],
        "kind": "submit",
        "plan": json.loads(file.read_text()),
        "options": {"start_epoch": 9, "prepare": False, "place_on": [], "vacate": None, "places": {}},
    }
    assert json.loads(run("status", "--json").stdout)["requests"] == 1


def test_a_plan_to_any_table_is_read_from_a_file(run, tmp_path):
    file = tmp_path / "owners.json"
    file.write_text("[2, 1, 0, 1, 0, 1, 0, 1]")
    plan = MigrationPlan.from_json(run("plan", "--assignment", file, "--json").stdout)
    assert [(m.bin, m.source, m.target) for m in plan.moves] == [(0, 0, 2)]
    more = MigrationPlan.from_json(run("plan", "--assignment", file, "--partitions", 5, "--json").stdout)
    assert more.target == RoutingTable(5, (2, 1, 0, 1, 0, 1, 0, 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"not": "a list of owners"', "no JSON list of owners"),
        ('{"x": 1}', "no JSON list of owners"),
        ("3", "no JSON list of owners"),
        ('["a", "b"]', "the owner 'a' is impossible"),
        ("[0, null]", "the owner None is impossible"),
        ("[0, -1]", "the owner -1 is impossible"),
        ("[]", "a table of 0 bins is impossible"),
        ("[0, 1]", "the target has 2 bins and the table in force 8"),
    ],
)
def test_a_file_that_names_no_owners_is_refused(run, tmp_path, text, said):
    file = tmp_path / "owners.json"
    file.write_text(text)
    assert said in run("plan", "--assignment", file, code=4).stderr


PLAN = json.loads(Fluid().plan(TWO, TWO.balanced(4)).to_json())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no plan", "it is no JSON"),
        ("[1]", "it has no format"),
        ("{}", "it has no format"),
        (json.dumps({k: v for k, v in PLAN.items() if k != "steps"}), "it has no steps"),
        (json.dumps(PLAN | {"gap": "1"}), "gap is not a whole number"),
        (json.dumps(PLAN | {"source": 3}), "source is not an object"),
        (json.dumps(PLAN | {"steps": [{"partitions": 4, "moves": [[0, "1", 2]]}]}), '[0, "1", 2] is no move'),
        (json.dumps(PLAN | {"steps": [{"partitions": True, "moves": []}]}), "partitions is not a whole number"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_words(run, tmp_path, text, said):
    file = tmp_path / "plan.json"
    file.write_text(text)
    message = run("plan", "--from", file, code=4).stderr
    assert f"this is no migration plan: {said}" in message
    assert not re.search(r"\w\(|Error\(|'\w+' object", message), message


def test_a_plan_that_is_no_text_is_a_wrong_argument(run, tmp_path):
    file = tmp_path / "plan.json"
    file.write_bytes(b"\xff\xfe")
    assert "--from" in run("plan", "--from", file, code=2).stderr


def test_a_plan_that_cannot_be_written_is_a_wrong_argument(run, tmp_path):
    result = run("plan", "--partitions", 4, "--output", tmp_path / "none/plan.json", code=2)
    assert "--output" in result.stderr
    assert "No such file or directory" in result.stderr


def test_rescale_leaves_a_request_and_says_when_it_takes_effect(run, checkpoint):
    result = run("rescale", 4, "--place-on", "1", "--place-on", "2")
    (request,) = checkpoint.requests()
    assert request["options"]["place_on"] == ["1", "2"]
    assert MigrationPlan.from_json(json.dumps(request["plan"])).target == TWO.balanced(4)
    assert f"request {request['id']} takes effect soon if the query runs" in result.stdout
    assert "2 -> 4 partitions" in result.stderr


@pytest.mark.parametrize(
    ("command", "place_on"),
    [
        (("plan", "--partitions", 4, "--submit"), []),
        (("rescale", 4), []),
        (("rebalance", "--by", "bins"), []),
        (("rebalance", "--by", "bins", "--grow"), ["2"]),
        (("drain", "1"), []),
    ],
    ids=lambda c: c[0] if isinstance(c, tuple) else "",
)
def test_all_commands_that_submit_say_alike_how_a_plan_is_carried_out(run, checkpoint, command, place_on):
    where = {"result": {"executors": ["1", "2", "3"], "partitions": [["1"], ["3"]]}}

    def submitted(*options):
        def answer(request):
            return where if request["kind"] == "placement" else {"result": {"migration_id": "m"}}

        with Answering(checkpoint, answer) as driver:
            run(*command, *options)
            assert until(lambda: bool(driver.seen) and driver.seen[-1]["kind"] == "submit")
        return driver.seen[-1]["options"]

    is_drain = command[0] == "drain"
    where_to = {"vacate": "1" if is_drain else None, "places": {"0": "2"} if is_drain else {}}
    assert submitted() == {"start_epoch": None, "prepare": True, "place_on": place_on, **where_to}
    given = submitted("--start-epoch", 9, "--no-prepare", "--place-on", "3")
    where_to["places"] = {"0": "3"} if is_drain else {}
    assert given == {"start_epoch": 9, "prepare": False, "place_on": ["3"], **where_to}
    assert submitted("--prepare")["prepare"]


def test_an_executor_that_is_not_alive_takes_no_partition(run, checkpoint):
    with Answering(checkpoint, lambda r: {"result": {"executors": ["1", "2"], "partitions": [["1"], ["2"]]}}):
        for command in (("rebalance", "--by", "bins"), ("drain", "1")):
            assert "'9' is not alive" in run(*command, "--place-on", "9", code=4).stderr
    assert checkpoint.requests() == []


def test_how_a_plan_is_carried_out_is_not_said_in_vain(run):
    for option in (("--start-epoch", 9), ("--no-prepare",), ("--place-on", "1"), ("--wait", 5)):
        assert "--submit" in run("plan", "--partitions", 4, *option, code=2).stderr


def test_a_dry_run_leaves_nothing(run, checkpoint):
    assert "2 -> 4 partitions" in run("rescale", 4, "--dry-run").stdout
    assert checkpoint.requests() == []


def test_a_rescale_is_followed_until_it_is_over(run, checkpoint):
    def take(request):
        plan = MigrationPlan.from_json(json.dumps(request["plan"]))
        checkpoint.take(plan, 6, id=request["id"])
        return {"result": {"migration_id": request["id"]}}

    with Answering(checkpoint, take):
        out = json.loads(run("rescale", 4, "--wait", 20, "--json", "--strategy", "fluid").stdout)
    assert (out["state"], out["steps_done"], out["steps"], out["bins_to_move"]) == ("finished", 4, 4, 4)
    assert list((checkpoint.root / "binshift/answers").iterdir()) == []


def test_a_migration_that_is_cancelled_while_it_is_followed_is_an_error(run, checkpoint):
    with Answering(checkpoint, lambda r: {"result": {"migration_id": r["id"]}}):
        result = run("rescale", 4, "--wait", 20, code=EXIT_CODES[binshift.MigrationError])
    assert "cancelled: 0 of" in result.stderr


def test_a_migration_that_takes_too_long_goes_on(run, checkpoint):
    def accept(request):
        checkpoint.under_way(MigrationPlan.from_json(json.dumps(request["plan"])), id=request["id"])
        return {"result": {"migration_id": request["id"]}}

    with Answering(checkpoint, accept):
        result = run("rescale", 4, "--wait", 5, code=EXIT_CODES[binshift.MigrationTimeout])
    assert "it goes on" in result.stderr


def test_a_migration_longer_than_the_routing_log_is_followed_to_its_end(run, checkpoint):
    def take(request):
        checkpoint.take(MigrationPlan.from_json(json.dumps(request["plan"])), 6, id=request["id"])
        for epoch in (0, 6, 7):
            (checkpoint.root / f"binshift/routing/{epoch}").unlink()
        return {"result": {"migration_id": request["id"]}}

    with Answering(checkpoint, take):
        assert "finished: 4 of 4" in run("rescale", 4, "--wait", 20, "--strategy", "fluid").stdout


@pytest.mark.parametrize(
    ("kind", "code"), [("PlanError", 4), ("MigrationError", 5), ("UnsupportedOperatorError", 7), ("Novelty", 1)]
)
def test_a_refusal_of_the_driver_has_the_exit_code_of_its_family(run, checkpoint, kind, code):
    error = {
        "kind": kind,
        "condition": "PLAN_OUTDATED",
        "parameters": {},
        "message": "it does not fit; plan again",
    }
    with Answering(checkpoint, lambda r: {"error": error}):
        assert "it does not fit; plan again" in run("rescale", 4, "--wait", 20, code=code).stderr


def test_another_migration_is_refused_while_one_is_under_way(run, checkpoint):
    checkpoint.under_way(AllAtOnce().plan(TWO, TWO.balanced(4)))
    assert "migration m-1 is under way" in run("rescale", 3, code=5).stderr
    assert checkpoint.requests() == []


def test_a_migration_whose_last_step_is_committed_is_in_nobodys_way(run, checkpoint):
    plan = AllAtOnce().plan(TWO, TWO.balanced(4))
    checkpoint.under_way(plan)
    checkpoint.take(plan, 6)
    run("rescale", 3)
    (request,) = checkpoint.requests()
    assert request["plan"]["steps"][-1]["partitions"] == 3


def test_a_migration_on_demand_is_not_over_as_long_as_the_driver_awaits_its_bins(run, checkpoint):
    plan = OnDemand().plan(TWO, TWO.balanced(4))
    checkpoint.under_way(plan)
    checkpoint.take(plan, 6)
    assert "migration m-1 is under way" in run("rescale", 3, code=5).stderr
    following = Follower(open_directory(str(checkpoint.root)), plan)
    assert str(following.status("m-1")) == "running: 1 of 1 steps done"
    (checkpoint.root / "binshift/plan.json").unlink()
    assert following.status("m-1").state is MigrationState.FINISHED


def test_a_migration_under_way_is_cancelled_by_its_id(run, checkpoint):
    assert "nothing to cancel" in run("cancel", code=5).stderr
    checkpoint.under_way(AllAtOnce().plan(TWO, TWO.balanced(4)))
    with Answering(checkpoint, lambda r: {"result": {}}) as driver:
        assert "migration m-1 is cancelled" in run("cancel", "--wait", 20).stdout
    assert [(r["kind"], r["migration_id"]) for r in driver.seen] == [("cancel", "m-1")]


def cluster(request):
    """What a query on executors 1, 2 and 3 answers, of which 3 has just joined; bin 0 has most rows."""
    if request["kind"] == "placement":
        return {"result": {"executors": ["1", "2", "3"], "partitions": [["1"], ["2"]]}}
    if request["kind"] == "stats":
        numbers = {"reads": [0] * 8, "writes": [50, 10, 10, 10, 10, 10, 0, 0], "bytes": [100] * 8}
        return {"result": {"epoch": 5, "columns": {"bin": list(range(8)), **numbers, "keys": [1] * 8}}}
    return {"result": {"migration_id": request["id"]}}


def test_a_rebalance_weighs_bins_as_the_running_query_does(run, checkpoint):
    with Answering(checkpoint, cluster) as driver:
        result = run("rebalance", "--grow", "--dry-run", "--json")
    assert [r["kind"] for r in driver.seen] == ["placement", "stats"]
    plan = MigrationPlan.from_json(result.stdout)
    assert plan.target.partitions == 3
    loads = [sum((50, 10, 10, 10, 10, 10, 0, 0)[b] for b in plan.target.bins_of(p)) for p in range(3)]
    assert max(loads) <= 55
    assert "busiest partition: " in result.stderr
    assert "bin 0" in result.stderr


def test_a_rebalance_that_grows_places_new_partitions_on_new_executors(run, checkpoint):
    with Answering(checkpoint, cluster) as driver:
        run("rebalance", "--by", "bins", "--grow")
    placement, submit = driver.seen + checkpoint.requests()
    assert (placement["kind"], submit["kind"]) == ("placement", "submit")
    assert submit["options"]["place_on"] == ["3"]
    assert MigrationPlan.from_json(json.dumps(submit["plan"])).target == TWO.balanced(3)


def test_a_rebalance_moves_whole_partitions_to_new_executors_and_adds_none(run, checkpoint):
    def where(request):
        on = [["1"], ["1"]]
        return {"result": {"executors": ["1", "2"], "partitions": on}} if request["kind"] == "placement" else {}

    with Answering(checkpoint, where) as driver:
        result = run("rebalance", "--by", "bins")
    placement, submit = driver.seen + checkpoint.requests()
    assert (placement["kind"], submit["kind"]) == ("placement", "submit")
    assert (submit["options"]["place_on"], submit["options"]["places"]) == ([], {"0": "2"})
    assert MigrationPlan.from_json(json.dumps(submit["plan"])).target == TWO
    assert "partition 0 moves to executor 2" in result.stderr


@pytest.mark.parametrize("command", [("plan", "--partitions", 4), ("rescale", 4, "--dry-run")])
def test_steps_are_bounded_by_the_bytes_that_the_running_query_knows(run, checkpoint, command):
    with Answering(checkpoint, cluster) as driver:
        whole = json.loads(run(*command, "--strategy", "all-at-once", "--json").stdout)
        assert driver.seen == []
        bounds = ("--strategy", "all-at-once", "--max-bytes-per-step", 200, "--gap", 1, "--json")
        plan = MigrationPlan.from_json(run(*command, *bounds).stdout)
    assert [r["kind"] for r in driver.seen] == ["stats"]
    assert len(whole["steps"]) == 1
    assert plan.target == TWO.balanced(4)
    assert (plan.strategy, plan.gap) == ("all-at-once, bounded", 1)
    assert [len(s.moves) for s in plan.steps] == [2, 2]


def test_a_rebalance_is_bounded_without_asking_twice(run, checkpoint):
    with Answering(checkpoint, cluster) as driver:
        for by in ("rows", "bins"):
            bounds = ("--pause-budget", 0.000002, "--strategy", "all-at-once")
            plan = MigrationPlan.from_json(
                run("rebalance", "--grow", "--by", by, *bounds, "--dry-run", "--json").stdout
            )
            assert {len(s.moves) for s in plan.steps} == {1}
            assert [r["kind"] for r in driver.seen] == ["placement", "stats"]
            driver.seen.clear()


def test_bounds_that_cannot_be_kept_are_refused(run, checkpoint, tmp_path):
    unknown = {"result": {"epoch": 5, "columns": {"bin": list(range(8)), "reads": [1] * 8, "writes": [1] * 8}}}
    with Answering(checkpoint, lambda r: unknown):
        assert "trackTotalNumberOfRows" in run("rescale", 4, "--max-bytes-per-step", 9, code=4).stderr
    with Answering(checkpoint, cluster):
        on_demand = ("--strategy", "on-demand", "--max-bytes-per-step", 9)
        refused = run("rescale", 4, *on_demand, code=4).stderr
        assert "a plan on demand moves everything in one step and cannot be bounded" in refused
    run("rescale", 4, "--max-bytes-per-step", 0, code=2)
    file = tmp_path / "plan.json"
    run("plan", "--partitions", 4, "--output", file)
    assert "taken as it is" in run("plan", "--from", file, "--pause-budget", 9, code=2).stderr
    result = run("rescale", 4, "--pause-budget", 9, "--answer-timeout", 0.05, code=6)
    assert "did not answer" in result.stderr
    assert checkpoint.requests() == []


def test_the_default_strategy_keeps_its_gap(run):
    assert MigrationPlan.from_json(run("plan", "--partitions", 4, "--gap", 3, "--json").stdout).gap == 3


def test_a_drain_moves_partitions_as_a_whole(run, checkpoint):
    with Answering(checkpoint, cluster):
        dry = run("drain", "2", "--dry-run", "--json")
        assert MigrationPlan.from_json(dry.stdout).moves == ()
        assert "partition 1 moves to executor 3" in dry.stderr
        assert "'9' is not alive" in run("drain", "9", code=4).stderr
        assert "'9' is not alive" in run("drain", "2", "--place-on", "9", code=4).stderr
    with Answering(checkpoint, lambda r: alone(1)):
        assert "no other executor than 1" in run("drain", "1", code=4).stderr


def test_a_drain_is_followed_until_the_driver_has_forgotten_it(checkpoint):
    follower = Follower(open_directory(str(checkpoint.root)), AllAtOnce().plan(TWO, TWO))
    file = checkpoint.under_way(follower.plan, vacate="1")
    assert follower.status("m-1").state is MigrationState.RUNNING
    written = json.loads(file.read_text())
    file.unlink()
    assert follower.status("m-1").state is MigrationState.FINISHED
    file.write_text(json.dumps(written | {"cancelled": True}))
    assert follower.status("m-1").state is MigrationState.RUNNING
    file.unlink()
    assert follower.status("m-1").state is MigrationState.CANCELLED


def test_another_migration_waits_for_a_drain(run, checkpoint):
    checkpoint.under_way(AllAtOnce().plan(TWO, TWO), vacate="1")
    assert "m-1 is under way" in run("rescale", 4, code=5).stderr


def refused(*arguments):
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert result.exit_code == EXIT_CODES[binshift.ConfigurationError], result.output
    return result.stderr


@pytest.mark.parametrize("command", [("status",), ("state", "show")])
def test_a_directory_that_is_no_checkpoint_is_refused_and_one_that_is_missing_otherwise(tmp_path, command):
    assert f"{tmp_path}/none does not exist" in refused(*command, tmp_path / "none")
    assert f"{tmp_path} is no checkpoint of a streaming query" in refused(*command, tmp_path)
    assert "nosuchscheme://host/path" in refused(*command, "nosuchscheme://host/path")


def test_a_checkpoint_of_another_provider_is_refused_with_the_way_from_there(tmp_path):
    def logged(provider):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets/3").write_text(f'v1\n{{"conf": {{"{PROVIDER_KEY}": "{provider}"}}}}\n{{}}')
        return refused("status", tmp_path)

    stock = logged(STOCK_PROVIDER)
    assert "Spark's RocksDB provider" in stock
    assert "take it over" in stock
    assert "binshift.configure()" in stock
    assert f"'binshift convert {tmp_path} --to binshift'" in logged("org.example.HDFSBackedStateStoreProvider")
    assert "has not planned its first epoch" in logged(PROVIDER)
    (tmp_path / "offsets/3").write_text("v1")
    assert "has not planned its first epoch" in refused("status", tmp_path)


def test_a_checkpoint_is_found_by_its_uri(checkpoint):
    result = CliRunner().invoke(cli, ["status", checkpoint.root.as_uri()])
    assert "none under way" in result.stdout


@pytest.mark.parametrize("text", ["no json", "[]", '{"bins": 8}', '{"format": 99}'])
def test_a_damaged_file_or_one_of_another_format_is_named(run, checkpoint, text):
    (checkpoint.root / "binshift/plan.json").write_text(text)
    assert "binshift/plan.json" in run("status", code=3).stderr


def test_a_checkpoint_without_its_first_entry_says_so(run, checkpoint):
    (checkpoint.root / "binshift/routing/0").unlink()
    assert "no routing entry" in run("status", code=3).stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plan",), 2),
        (("plan", "--partitions", 9), 4),
        (("rescale", 0), 4),
        (("rescale", 4, "--strategy", "slow"), 4),
        (("rescale", 4, "--strategy", "batched:0"), 4),
        (("plan", "--partitions", 4, "--gap", -1), 4),
        (("plan", "--partitions", 4, "--submit", "--start-epoch", -1), 4),
        (("rebalance", "--max-moves", -1), 4),
        (("drain", "9"), 4),
    ],
)
def test_wrong_arguments_have_their_exit_codes_and_no_message_names_an_argument_of_python(
    run, checkpoint, arguments, code
):
    with Answering(checkpoint, lambda r: cluster(r) if r["kind"] != "placement" else alone(1)):
        result = run(*arguments, code=code)
    assert not re.search(r"[a-z_]=", result.stderr), result.stderr


def alone(*executors):
    return {"result": {"executors": [str(e) for e in executors], "partitions": [["1"], ["1"]]}}


STATE: Any = cli.commands["state"]
COMMANDS: list[tuple[str, ...]] = [(name,) for name in cli.commands]
COMMANDS += [("state", name) for name in STATE.commands]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_a_summary_an_example_and_exit_codes(command):
    summary, _, rest = CliRunner().invoke(cli, [*command, "--help"]).output.partition("Options:")
    example = rest.partition("Example:")[2]
    assert re.search(f"binshift {' '.join(command)}\\b", example)
    assert "Exit codes: 0 done" in example
    group = CliRunner().invoke(cli, [*command[:-1], "--help"]).output
    (line,) = [x for x in group.splitlines() if x.split()[:1] == [command[-1]]]
    assert not line.endswith("...")
    assert line.split(None, 1)[1] in " ".join(summary.split())


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("status", "012356"),
        ("plan", "01234567"),
        ("history", "0123"),
        ("rescale", "01234567"),
        ("rebalance", "01234567"),
        ("drain", "01234567"),
        ("cancel", "012356"),
    ],
)
def test_a_command_names_the_exit_codes_that_it_can_give(command, codes):
    out = " ".join(CliRunner().invoke(cli, [command, "--help"]).output.split()).partition("Exit codes: ")[2]
    assert "".join(re.findall(r"(?:^|, )(\d) ", out)) == codes


ENTRY = {
    "format": 1,
    "epoch": 0,
    "partitions": 2,
    "assignment": [0, 1] * 4,
    "written_at": "2026-01-01T00:00:00Z",
    "previous": -1,
}


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("plan.json", {"format": 1}),
        ("plan.json", {"format": 1, "id": "m", "cancelled": False, "plan": PLAN | {"steps": 3}}),
        ("routing/0", {"format": 1}),
        ("routing/0", ENTRY | {"partitions": 1}),
        ("routing/0", ENTRY | {"assignment": 7}),
        ("routing/0", {name: value for name, value in ENTRY.items() if name != "previous"}),
    ],
)
def test_a_file_with_impossible_contents_is_damage_to_all_commands_that_read_it(run, checkpoint, file, data):
    checkpoint.write(f"binshift/{file}", data)
    for arguments in (("status",), ("rescale", 4)):
        message = run(*arguments, code=3).stderr
        assert f"binshift/{file} is damaged" in message
        assert "restore it" in message


def test_the_help_names_the_exit_code_of_each_family():
    out = " ".join(CliRunner().invoke(cli, ["--help"]).output.split())
    for kind, code in EXIT_CODES.items():
        assert f"{code} {kind.__name__}" in out


def test_the_demo_is_that_of_the_source_tree_and_its_exit_code_is_kept(monkeypatch, tmp_path):
    (tmp_path / "examples").mkdir()
    script = tmp_path / "examples/flights"
    script.write_text("import sys; sys.exit(3 + (sys.argv[1:] == ['--cluster']))")
    monkeypatch.setattr(binshift, "__file__", str(tmp_path / "binshift/__init__.py"))
    assert CliRunner().invoke(cli, ["demo", "--cluster"]).exit_code == 4
    script.unlink()
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 3
    assert "make setup" in result.stderr


def test_the_benchmarks_that_are_offered_are_there():
    for script in running._BENCHMARKS.values():
        assert (Path(binshift.__file__).parents[1] / script).is_file()
