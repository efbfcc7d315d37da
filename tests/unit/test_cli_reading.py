"""Commands that read a checkpoint: status, history and plan, on checkpoints written by hand."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import binshift
from binshift import Fluid, MigrationPlan, RoutingTable
from binshift.cli.exits import EXIT_CODES
from binshift.cli.main import cli
from binshift.session import PROVIDER, PROVIDER_KEY, STOCK_PROVIDER
from unit.checkpoints import TWO, Answering


def test_status_tells_the_table_and_that_nothing_is_under_way(run):
    out = run("status").stdout
    assert "8 bins in 2 partitions of 4 to 4 bins, from epoch 0 on" in out
    assert "last epoch   5 committed, 5 logged" in out
    assert "stateStoreSave (binned)" in out
    assert "none under way" in out
    facts = json.loads(run("status", "--json").stdout)
    assert facts["routing"] == {"epoch": 0, "partitions": 2, "fewest_bins": 4, "most_bins": 4}
    assert (facts["migration"], facts["requests"], facts["spark_version"]) == (None, [], "4.3.0")


def test_status_follows_a_migration_that_is_under_way(run, checkpoint):
    plan = Fluid().plan(TWO, TWO.balanced(4))
    checkpoint.under_way(plan)
    checkpoint.take(plan, 6, steps=3)
    migration = json.loads(run("status", "--json").stdout)["migration"]
    assert (migration["id"], migration["steps_done"], migration["steps"]) == ("m-1", 3, 4)
    assert "m-1: 2 -> 4 partitions, fluid, 3 of 4 steps done" in run("status").stdout


def test_status_tells_what_a_migration_undoes_and_why_it_has_stopped(run, checkpoint):
    plan = Fluid().plan(TWO, TWO.balanced(4))
    limits = {"deadline": {"seconds": 600, "due": 1}, "on_timeout": "rollback"}
    file = checkpoint.under_way(plan, **limits)
    told = json.loads(run("status", "--json").stdout)["migration"]
    assert {n: told[n] for n in (*limits, "guard")} == {**limits, "guard": None}
    assert (told["undoes"], told["rolls_back"], told["stopped_because"]) == (None, False, None)
    for stopped, said in (
        (
            {"why": "its deadline of 600 s passed", "rolls_back": True},
            "about to be undone because its deadline",
        ),
        ({"why": "its deadline of 600 s passed", "rolls_back": False}, "cancelled because its deadline"),
        (None, "cancelled\n"),
    ):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"cancelled": True, "stopped": stopped}))
        assert f"0 of 4 steps done, {said}" in run("status").stdout
    file.unlink()
    checkpoint.under_way(plan, id="m-1-rollback")
    assert "m-1-rollback: 2 -> 4 partitions, fluid, 0 of 4 steps done, undoes m-1\n" in run("status").stdout
    assert json.loads(run("status", "--json").stdout)["migration"]["undoes"] == "m-1"


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


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            {"migration_id": None, "progress": None, "routing": {"epoch": 3, "partitions": 2}},
            "the query runs, 2 partitions since epoch 3, and has no migration under way",
        ),
        (
            {
                "migration_id": "m",
                "progress": {"state": "running", "steps_done": 1, "waits": "waits for epoch 9"},
            }
            | {"routing": None},
            "the query runs, no table yet; migration m: running, 1 steps done, the next step waits for epoch 9",
        ),
        (
            {
                "migration_id": "m",
                "progress": {"state": "rolling-back", "steps_done": 1, "undone": "it was late"},
            }
            | {"routing": None},
            "the query runs, no table yet; migration m: rolling-back because it was late, 1 steps done",
        ),
    ],
)
def test_what_the_running_query_answers_is_said_in_words(run, checkpoint, told, said):
    with Answering(checkpoint, lambda r: {"result": told}):
        assert f"live         {said}\n" in run("status", "--live", 60).stdout


def test_a_query_without_an_epoch_has_none_as_its_last_one(run, checkpoint):
    (checkpoint.root / "commits/5").unlink()
    assert "last epoch   none committed, 5 logged" in run("status").stdout


def test_a_query_that_does_not_answer_is_a_timeout_and_its_request_is_taken_back(run, checkpoint):
    result = run("status", "--live", 0.05, code=EXIT_CODES[binshift.MigrationTimeout])
    assert "did not answer in 0.05 s" in result.stderr
    assert "the request was taken back" in result.stderr
    assert checkpoint.requests() == []


def test_status_is_shown_anew_until_it_is_interrupted(run, checkpoint, monkeypatch):
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt
        checkpoint.commit(5 + len(pauses))

    # Replaces the module's `time`, not `time.sleep`, which threads of other tests may call.
    monkeypatch.setattr("binshift.cli.status.time", SimpleNamespace(sleep=pause))
    shown = [json.loads(line) for line in run("status", "--json", "--watch", 7).stdout.splitlines()]
    assert [s["committed_epoch"] for s in shown] == [5, 6, 7]
    assert pauses == [7, 7, 7]
    pauses.clear()
    assert run("status", "--watch", 7).stdout.count("committed") == 3


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
    assert json.loads(run("status", "--json").stdout)["requests"][0]["to_partitions"] == 4


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
        ('{"not": "a list of owners"', "not a JSON list of owners"),
        ('{"x": 1}', "not a JSON list of owners"),
        ("3", "not a JSON list of owners"),
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
        ("no plan", "it is not JSON"),
        ("[1]", "it has no format"),
        ("{}", "it has no format"),
        (json.dumps({k: v for k, v in PLAN.items() if k != "steps"}), "it has no steps"),
        (json.dumps(PLAN | {"gap": "1"}), "gap is not a whole number"),
        (json.dumps(PLAN | {"source": 3}), "source is not an object"),
        (
            json.dumps(PLAN | {"steps": [{"partitions": 4, "moves": [[0, "1", 2]]}]}),
            '[0, "1", 2] is not a move',
        ),
        (json.dumps(PLAN | {"steps": [{"partitions": True, "moves": []}]}), "partitions is not a whole number"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_words(run, tmp_path, text, said):
    file = tmp_path / "plan.json"
    file.write_text(text)
    message = run("plan", "--from", file, code=4).stderr
    assert f"this is not a migration plan: {said}" in message
    assert not re.search(r"\w\(|Error\(|'\w+' object", message), message


def test_a_plan_that_is_no_text_is_a_wrong_argument(run, tmp_path):
    file = tmp_path / "plan.json"
    file.write_bytes(b"\xff\xfe")
    assert "--from" in run("plan", "--from", file, code=2).stderr


def test_a_plan_that_cannot_be_written_is_a_wrong_argument(run, tmp_path):
    result = run("plan", "--partitions", 4, "--output", tmp_path / "none/plan.json", code=2)
    assert "--output" in result.stderr
    assert "No such file or directory" in result.stderr


def test_the_default_strategy_keeps_its_gap(run):
    assert MigrationPlan.from_json(run("plan", "--partitions", 4, "--gap", 3, "--json").stdout).gap == 3


def refused(*arguments):
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert result.exit_code == EXIT_CODES[binshift.ConfigurationError], result.output
    return result.stderr


def log_with(root, epoch, provider):
    (root / "offsets").mkdir(exist_ok=True)
    (root / f"offsets/{epoch}").write_text(f'v1\n{{"conf": {{"{PROVIDER_KEY}": "{provider}"}}}}\n{{}}')


@pytest.mark.parametrize("command", [("status",), ("state", "show")])
def test_a_directory_that_is_no_checkpoint_is_refused_and_one_that_is_missing_otherwise(tmp_path, command):
    assert f"{tmp_path}/none does not exist" in refused(*command, tmp_path / "none")
    assert f"{tmp_path} is not the checkpoint of a streaming query" in refused(*command, tmp_path)
    assert "nosuchscheme://host/path" in refused(*command, "nosuchscheme://host/path")


def test_a_checkpoint_of_another_provider_is_refused_with_the_way_from_there(tmp_path):
    def logged(provider):
        log_with(tmp_path, 3, provider)
        return refused("status", tmp_path)

    stock = logged(STOCK_PROVIDER)
    assert "Spark's RocksDB provider" in stock
    assert "take it over" in stock
    assert "binshift.configure()" in stock
    assert f"'binshift convert {tmp_path} --to binshift'" in logged("org.example.HDFSBackedStateStoreProvider")
    assert "has not planned its first epoch" in logged(PROVIDER)
    (tmp_path / "offsets/3").write_text("v1")
    assert "has not planned its first epoch" in refused("status", tmp_path)


def test_a_checkpoint_without_bins_is_told_by_its_state(checkpoint):
    """By whether there is state at all, and by who wrote it: binshift, or only another provider until now."""
    shutil.rmtree(checkpoint.root / "binshift")
    (checkpoint.root / "commits/5").rename(checkpoint.root / "commits/4")
    for epoch, provider in ((4, PROVIDER), (5, PROVIDER)):
        log_with(checkpoint.root, epoch, provider)
    without = refused("status", checkpoint.root)
    assert "has no state, though epoch 4 is committed" in without
    assert "no stateful operator, or none that has run yet" in without
    (checkpoint.root / "state/0").mkdir(parents=True)
    assert "has lost its directory binshift" in refused("status", checkpoint.root)
    log_with(checkpoint.root, 4, STOCK_PROVIDER)
    assert "has not planned its first epoch" in refused("status", checkpoint.root)


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
        ("plans/m.json", {"format": 1, "id": "m", "cancelled": False, "plan": PLAN | {"steps": 3}}),
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
