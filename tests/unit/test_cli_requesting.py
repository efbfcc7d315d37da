"""Commands that a query carries out, such as rescale and rollback, on checkpoints written by hand."""

import json
import threading

import pytest

import binshift
from binshift import AllAtOnce, Fluid, MigrationPlan, MigrationState, OnDemand
from binshift.cli.exits import EXIT_CODES
from binshift.cli.following import Follower, send
from binshift.control.directory import open_directory
from binshift.planning.limits import Deadline
from binshift.planning.options import MigrationOptions
from binshift.planning.plan import undoing
from harness import until
from unit.checkpoints import TWO, Answering, alone, cluster


def test_rescale_leaves_a_request_and_says_when_it_takes_effect(run, checkpoint):
    result = run("rescale", 4, "--start-epoch", 7)
    (request,) = checkpoint.requests()
    assert (request["options"]["start_epoch"], request["options"]["place_on"]) == (7, [])
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
    if not is_drain:
        limits = ("--deadline", "10 min", "--on-timeout", "rollback", "--guard-longest-epoch", 2)
        assert submitted(*limits) == submitted() | {
            "deadline": {"seconds": 600},
            "on_timeout": "rollback",
            "guard": {"longest_epoch_s": 2, "epochs": 3},
        }


@pytest.mark.parametrize(
    ("command", "application"),
    [
        (("drain", "1"), "app-1"),
        (("rebalance", "--by", "bins"), "app-1"),
        (("rebalance", "--by", "bins", "--grow"), "app-1"),
        (("rescale", 4), None),
        (("rescale", 4, "--place-on", "1"), "app-1"),
        (("plan", "--partitions", 4, "--submit", "--place-on", "1"), "app-1"),
    ],
    ids=str,
)
def test_a_plan_that_names_executors_says_whose_they_are(run, checkpoint, command, application):
    def answer(request):
        where = {"executors": ["1", "2"], "partitions": [["1"], ["1"]], "application": "app-1"}
        return {"result": where if request["kind"] == "placement" else {"migration_id": "m"}}

    with Answering(checkpoint, answer) as driver:
        run(*command)
        assert until(lambda: bool(driver.seen) and driver.seen[-1]["kind"] == "submit")
    assert driver.seen[-1]["options"].get("application") == application


def test_an_executor_that_is_not_alive_takes_no_partition(run, checkpoint):
    with Answering(checkpoint, lambda r: {"result": {"executors": ["1", "2"], "partitions": [["1"], ["2"]]}}):
        submitting = ("plan", "--partitions", 4, "--submit")
        for command in (("rebalance", "--by", "bins"), ("drain", "1"), ("rescale", 4), submitting):
            assert "'9' is not alive" in run(*command, "--place-on", "9", code=4).stderr
    assert checkpoint.requests() == []


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


def test_a_migration_is_finished_also_when_others_have_followed_it(checkpoint):
    plan = AllAtOnce().plan(TWO, TWO.balanced(4))
    follower = Follower(open_directory(str(checkpoint.root)), plan, MigrationOptions())
    checkpoint.take(plan, 6)
    then = Fluid().plan(plan.target, TWO)
    checkpoint.take(then, 7, id="m-2")
    assert str(follower.status("m-1")) == "finished: 1 of 1 steps done"
    # A migration that is under way has the newest entries.
    checkpoint.under_way(plan)
    assert follower.status("m-1").steps_done == 0


def test_entries_are_not_read_without_end_for_a_migration_that_is_over(checkpoint, monkeypatch):
    plan = AllAtOnce().plan(TWO, TWO.balanced(4))
    follower = Follower(open_directory(str(checkpoint.root)), plan, MigrationOptions())
    checkpoint.take(plan, 6)
    checkpoint.take(Fluid().plan(plan.target, TWO), 7, id="m-2")
    monkeypatch.setattr("binshift.control.directory._MAX_OTHERS", 2)
    assert follower.status("m-1").state is MigrationState.CANCELLED


def test_a_migration_that_takes_too_long_goes_on(run, checkpoint):
    def accept(request):
        checkpoint.under_way(MigrationPlan.from_json(json.dumps(request["plan"])), id=request["id"])
        return {"result": {"migration_id": request["id"]}}

    with Answering(checkpoint, accept):
        result = run("rescale", 4, "--wait", 5, code=EXIT_CODES[binshift.MigrationTimeout])
    assert "it continues" in result.stderr


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
    following = Follower(open_directory(str(checkpoint.root)), plan, MigrationOptions())
    assert str(following.status("m-1")) == "running: 1 of 1 steps done"
    (checkpoint.root / "binshift/plans/m-1.json").unlink()
    assert following.status("m-1").state is MigrationState.FINISHED


def test_a_plan_that_waits_is_listed_and_withdrawn_and_no_second_one_is_left_beside_it(run, checkpoint):
    first = json.loads(run("rescale", 4, "--json").stdout)["request"]
    for second in (("rescale", 3), ("plan", "--partitions", 3, "--submit")):
        refused = run(*second, code=5).stderr
        assert f"request {first} (a plan 2 -> 4 partitions, left " in refused
        assert "--replace" in refused
    assert [r["id"] for r in checkpoint.requests()] == [first]
    (listed,) = json.loads(run("status", "--json").stdout)["requests"]
    said = (listed["id"], listed["kind"], listed["from_partitions"], listed["to_partitions"])
    assert said == (first, "submit", 2, 4)
    assert f"not taken    request {first} (a plan 2 -> 4" in run("status").stdout
    done = json.loads(run("rescale", 3, "--replace", "--json").stdout)
    assert done["replaced"] == [first]
    assert [r["id"] for r in checkpoint.requests()] == [done["request"]]
    out = run("cancel").stdout
    assert f"request {done['request']} (a plan 2 -> 3 partitions, left " in out
    assert "is withdrawn" in out
    assert checkpoint.requests() == []
    assert "none waits; there is nothing to cancel" in run("cancel", code=5).stderr


def test_what_waits_is_withdrawn_also_if_it_is_signed_or_not_understood_and_a_question_stays(
    run, checkpoint, monkeypatch
):
    checkpoint.write("metadata", {"id": "q-1"})
    monkeypatch.setenv("BINSHIFT_REQUESTS_SECRET", "0123456789abcdef")
    signed = json.loads(run("rescale", 4, "--json").stdout)["request"]
    checkpoint.write("binshift/requests/strange.json", ["what"])
    checkpoint.write("binshift/requests/question.json", {"format": 1, "id": "question", "kind": "status"})
    kinds = {r["id"]: r["kind"] for r in json.loads(run("status", "--json").stdout)["requests"]}
    assert kinds == {signed: "submit", "strange": "", "question": "status"}
    told = json.loads(run("cancel", "--json").stdout)
    assert (set(told["withdrawn"]), told["request"], told["cancelled"]) == ({signed, "strange"}, None, False)
    assert [r["id"] for r in checkpoint.requests()] == ["question"]


def test_a_plan_that_the_query_takes_meanwhile_is_not_replaced(run, checkpoint, monkeypatch):
    taken = json.loads(run("rescale", 4, "--json").stdout)["request"]

    def take(mailbox, request):
        checkpoint.under_way(AllAtOnce().plan(TWO, TWO.balanced(4)), id=request)
        return True

    monkeypatch.setattr("binshift.control.mailbox.Mailbox.take_back", take)
    assert f"migration {taken} is under way" in run("rescale", 3, "--replace", code=5).stderr
    assert [r["id"] for r in checkpoint.requests()] == [taken]


def test_a_request_that_is_waited_for_in_vain_stays_and_says_so(run, checkpoint):
    said = run("rescale", 4, "--wait", 0.05, code=6).stderr
    (request,) = checkpoint.requests()
    assert f"requests/{request['id']}.json stays, and takes effect when the query continues" in said
    assert "binshift cancel" in said


def test_a_migration_under_way_is_cancelled_by_its_id(run, checkpoint):
    assert "nothing to cancel" in run("cancel", code=5).stderr
    checkpoint.under_way(AllAtOnce().plan(TWO, TWO.balanced(4)))
    with Answering(checkpoint, lambda r: {"result": {}}) as driver:
        assert "migration m-1 is cancelled" in run("cancel", "--wait", 20).stdout
    assert [(r["kind"], r["migration_id"]) for r in driver.seen] == [("cancel", "m-1")]


LIMITED = MigrationOptions(deadline=Deadline(600), on_timeout="rollback")


def test_a_migration_whose_deadline_passes_is_followed_until_it_is_undone(checkpoint):
    plan = Fluid().plan(TWO, TWO.balanced(4))
    follower = Follower(open_directory(str(checkpoint.root)), plan, LIMITED)
    file = checkpoint.under_way(plan)
    checkpoint.take(plan, 6, steps=2)
    assert str(follower.status("m-1")) == "running: 2 of 4 steps done"
    stopped = json.loads(file.read_text()) | {"cancelled": True}
    stopped["stopped"] = {"why": "its deadline of 600 s passed", "rolls_back": True}
    file.write_text(json.dumps(stopped))
    assert str(follower.status("m-1")) == "rolling back because its deadline of 600 s passed: 2 of 4 steps done"
    with pytest.raises(binshift.MigrationError, match="migration m-1 is under way"):
        send(follower, as_json=False, wait=None, replace=False)
    back = undoing(plan, 2)
    undo = checkpoint.under_way(back, id="m-1-rollback")
    # Both are there for a moment. The one that is listed first in a directory is not always the older one.
    assert follower.status("m-1").state is MigrationState.ROLLING_BACK
    assert follower.checkpoint.migration().id == "m-1"
    file.unlink()
    checkpoint.take(back, 9, id="m-1-rollback", steps=1)
    status = follower.status("m-1")
    assert (status.state, status.steps_done, status.steps_undone) == (MigrationState.ROLLING_BACK, 2, 1)
    assert "2 of 4 steps done, 1 of them undone" in str(status)
    undo.unlink()
    checkpoint.take(back, 9, id="m-1-rollback", done=1)
    status = follower.status("m-1")
    assert str(status) == (
        "rolled back because its deadline of 600 s passed: 2 of 4 steps done, 2 of them undone"
    )
    assert status.is_over


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [
        (
            {
                "state": "rolled-back",
                "steps_done": 0,
                "undone": "it was late",
            },
            "MIGRATION_ROLLED_BACK",
            "rolled back because it was late: 0 of 4 steps done; the partitions",
        ),
        (
            {"state": "cancelled", "steps_done": 0, "ended_because": "its deadline of 600 s passed"},
            "MIGRATION_CANCELLED",
            "cancelled because its deadline of 600 s passed: 0 of 4 steps done",
        ),
    ],
    ids=["rollback", "keep"],
)
def test_the_query_says_why_a_migration_with_a_deadline_has_ended_early(run, checkpoint, told, code, said):
    def answer(request):
        progress = {"migration_id": "m-1", "progress": told}
        return {"result": progress if request["kind"] == "status" else {"migration_id": "m-1"}}

    with Answering(checkpoint, answer) as driver:
        limits = ("--deadline", "10 min", "--on-timeout", "keep" if code.endswith("CANCELLED") else "rollback")
        result = run("rescale", 4, "--strategy", "fluid", "--wait", 20, *limits, code=5)
    assert [r["kind"] for r in driver.seen] == ["submit", "status"]
    assert f"migration m-1 {said}" in result.stderr
    assert f"MigrationError.{code}" in result.stderr


def test_a_rollback_is_asked_for_by_the_id_of_the_newest_migration(run, checkpoint):
    assert "there is nothing to undo" in run("rollback", code=5).stderr
    plan = AllAtOnce().plan(TWO, TWO.balanced(4))
    checkpoint.take(plan, 6)
    assert "takes effect soon if the query runs" in run("rollback").stdout
    assert [(r["kind"], r["migration_id"]) for r in checkpoint.requests()] == [("rollback", "m-1")]
    # It waits for the query like a plan.
    for command in (("rescale", 3), ("rollback",)):
        refused = run(*command, code=5).stderr
        assert "(rollback, left " in refused
        assert "--replace" not in refused
    assert "(rollback, left " in run("rescale", 3, "--replace", code=5).stderr
    assert "(rollback, left " in run("cancel").stdout
    assert checkpoint.requests() == []
    # A migration that is under way comes first, and one that undoes another is not undone itself.
    for under_way, meant in (("m-2", "m-2"), ("m-1-rollback", "m-1")):
        file = checkpoint.under_way(plan, id=under_way)
        told = json.loads(run("rollback", "--json").stdout)
        assert told["migration_id"] == meant
        assert run("rollback", "--json", code=5).stdout == ""
        run("cancel")
        file.unlink()
        for request in checkpoint.requests():
            (checkpoint.root / f"binshift/requests/{request['id']}.json").unlink()
    assert json.loads(run("rollback", "--migration", "another", "--json").stdout)["migration_id"] == "another"


def test_a_rollback_is_followed_until_it_is_over(run, checkpoint):
    plan = AllAtOnce().plan(TWO, TWO.balanced(4))
    checkpoint.take(plan, 6)
    told = {"state": "rolled-back", "steps_done": 1}

    def answer(request):
        if request["kind"] == "rollback":
            checkpoint.under_way(undoing(plan, 1), id="m-1-rollback")
            threading.Timer(0.3, (checkpoint.root / "binshift/plans/m-1-rollback.json").unlink).start()
            return {"result": {"migration_id": "m-1"}}
        assert until(lambda: not (checkpoint.root / "binshift/plans/m-1-rollback.json").exists())
        if told and told["state"] == "rolling-back":
            # Between two looks, neither file was there.
            told["state"] = "rolled-back"
            return {"result": {"migration_id": "m-1", "progress": {"state": "rolling-back", "steps_done": 1}}}
        return {"result": {"migration_id": "m-1", "progress": told}}

    with Answering(checkpoint, answer) as driver:
        assert run("rollback", "--wait", 20).stdout == "migration m-1 is rolled back\n"
        told["state"] = "rolling-back"
        assert run("rollback", "--wait", 20).stdout == "migration m-1 is rolled back\n"
        for state in ("cancelled", "finished"):
            told["state"] = state
            said = run("rollback", "--wait", 20, code=5).stderr
            assert f"migration m-1 is {state}, and not rolled back as a whole" in said
        told = None
        assert (
            "does not know whether migration m-1 is rolled back" in run("rollback", "--wait", 20, code=5).stderr
        )
    kinds = [(r["kind"], r["migration_id"]) for r in driver.seen]
    once = [("rollback", "m-1"), ("status", "m-1")]
    assert kinds == [*once, *once, ("status", "m-1"), *once * 3]
    impossible = {
        "kind": "MigrationError",
        "condition": "ROLLBACK_IMPOSSIBLE",
        "parameters": {},
        "message": "no",
    }
    with Answering(checkpoint, lambda r: {"error": impossible}):
        assert "ROLLBACK_IMPOSSIBLE" in run("rollback", "--wait", 20, code=5).stderr


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
    owners = tmp_path / "owners.json"
    owners.write_text("[2, 1, 0, 1, 0, 1, 0, 1]")
    for said in (
        ("--pause-budget", 9),
        ("--max-bytes-per-step", 9),
        ("--partitions", 8),
        ("--assignment", owners),
        ("--strategy", "fluid"),
        ("--gap", 1),
    ):
        assert "taken as it is" in run("plan", "--from", file, "--submit", *said, code=2).stderr
    result = run("rescale", 4, "--pause-budget", 9, "--answer-timeout", 0.05, code=6)
    assert "did not answer" in result.stderr
    assert checkpoint.requests() == []


def test_a_drain_moves_partitions_as_a_whole(run, checkpoint):
    with Answering(checkpoint, cluster):
        dry = run("drain", "2", "--dry-run", "--json")
        assert MigrationPlan.from_json(dry.stdout).moves == ()
        assert "partition 1 moves to executor 3" in dry.stderr
        assert "'9' is not alive" in run("drain", "9", code=4).stderr
        assert "'9' is not alive" in run("drain", "2", "--place-on", "9", code=4).stderr
    with Answering(checkpoint, lambda r: alone(1)):
        assert "no other executor than 1" in run("drain", "1", code=4).stderr


def telling(checkpoint, result):
    return Answering(checkpoint, lambda request: {"result": result})


@pytest.mark.parametrize(
    ("how", "target"),
    [({"vacate": "1"}, TWO), ({"places": {0: "2"}}, TWO), ({"places": {0: "2"}}, TWO.balanced(4))],
    ids=["drain", "rebalance", "rebalance with steps"],
)
def test_what_moves_partitions_is_followed_until_the_driver_says_how_it_ended(checkpoint, how, target):
    plan = AllAtOnce().plan(TWO, target)
    follower = Follower(open_directory(str(checkpoint.root)), plan, MigrationOptions(**how))
    checkpoint.take(plan, 6)
    file = checkpoint.under_way(plan, **how)
    assert follower.status("m-1").state is MigrationState.RUNNING
    file.unlink()
    told = {"state": "", "steps_done": len(plan.steps)}
    for state in (MigrationState.FINISHED, MigrationState.CANCELLED):
        told["state"] = str(state)
        with telling(checkpoint, {"migration_id": "m-1", "progress": told}) as driver:
            assert follower.status("m-1").state is state
        assert [(r["kind"], r["migration_id"]) for r in driver.seen] == [("status", "m-1")]
    for known, why in (
        ({"migration_id": None}, "whether the migration was cancelled; give the same command again"),
        ({}, "the query's jar is older than this client"),
    ):
        result = {**known, "progress": None}
        with telling(checkpoint, result), pytest.raises(binshift.MigrationError, match=why):
            follower.status("m-1")


def test_how_it_ended_is_not_waited_for_without_end(checkpoint, monkeypatch):
    monkeypatch.setattr("binshift.cli.following._ANSWER_SECONDS", 0.05)
    plan = AllAtOnce().plan(TWO, TWO)
    follower = Follower(open_directory(str(checkpoint.root)), plan, MigrationOptions(vacate="1"))
    with pytest.raises(binshift.MigrationTimeout, match=r"did not answer in 0\.05 s"):
        follower.status("m-1")


def test_a_drain_that_somebody_else_cancels_is_an_error(run, checkpoint):
    def answer(request):
        if request["kind"] == "status":
            return {"result": {"migration_id": "m-1", "progress": {"state": "cancelled", "steps_done": 0}}}
        return cluster(request)

    # The driver deletes the plan before it is read.
    with Answering(checkpoint, answer) as driver:
        result = run("drain", "2", "--wait", 20, code=EXIT_CODES[binshift.MigrationError])
    assert [r["kind"] for r in driver.seen] == ["placement", "submit", "status"]
    assert "cancelled: 0 of 0 steps done" in result.stderr


def test_another_migration_waits_for_a_drain(run, checkpoint):
    checkpoint.under_way(AllAtOnce().plan(TWO, TWO), vacate="1")
    assert "m-1 is under way" in run("rescale", 4, code=5).stderr
