"""Python reads and writes the files of `binshift/` as in the golden examples; see tests/golden.py."""

import json
import re
from datetime import datetime

import pytest

import golden_plans
from binshift.control.directory import open_directory
from binshift.control.history import history_table
from binshift.control.mailbox import Mailbox
from binshift.control.routing_log import ENTRY_KEY
from binshift.control.savepoints import Savepoints
from binshift.errors import PlanError
from binshift.inspect.facts import Facts
from binshift.planning.options import MigrationOptions
from binshift.planning.plan import MigrationPlan
from binshift.planning.routing import RoutingTable
from golden import ENTRY, EPOCH, FILES, GOLDEN, NEXT, PLAN, SAVEPOINT, checkpoint, golden

MIGRATION = "0b6c3a52-6c0f-4c1e-9a57-3f7f0d6f5f10"
OPTIONS = MigrationOptions(start_epoch=3, prepare=False, place_on=("driver",), vacate="7", places={1: "driver"})


@pytest.fixture
def directory(tmp_path):
    return open_directory(str(checkpoint(tmp_path)))


@pytest.fixture
def facts(directory):
    return Facts(directory.files)


def test_the_layout(directory, facts):
    assert directory.layout() == golden("layout.json")
    assert (facts.bins, facts.first_binned_epoch) == (8, 2)


def test_a_routing_entry(directory):
    entry = golden(ENTRY)
    logged = {"batchTimestampMs": 0, "conf": {ENTRY_KEY: ENTRY.removeprefix("routing/").replace("-", ":")}}
    with directory.files.filesystem.open_output_stream(directory.files.path(f"offsets/{NEXT + 1}")) as out:
        out.write(f"v1\n{json.dumps(logged)}\n".encode())
    facts = Facts(directory.files)
    assert directory.routing() == RoutingTable(3, (0, 1, 2, 1, 0, 1, 2, 0), epoch=NEXT)
    found = facts.routing_entry(ENTRY.removeprefix("routing/"))
    assert found.table == directory.routing() == facts.table(NEXT + 1)
    assert (found.step, found.written_at, found.previous) == (
        entry["step"],
        entry["written_at"],
        entry["previous"],
    )
    # The entry before it was written by a version that named files otherwise.
    assert facts.table(NEXT - 1) == RoutingTable(3, (0, 1, 0, 1, 0, 1, 2, 1), epoch=EPOCH)
    assert [step["step"] for step in directory.steps()] == [golden(f"routing/{EPOCH}")["step"], entry["step"]]


def test_the_claim_of_a_run_names_the_entry_of_its_first_epoch(directory):
    run = golden("runs/3")
    at = round(datetime.fromisoformat(run["logged_at"]).timestamp() * 1000)
    for time, epoch in ((at, NEXT), (at + 1, EPOCH)):
        with directory.files.filesystem.open_output_stream(
            directory.files.path(f"offsets/{run['began']}")
        ) as out:
            out.write(f"v1\n{json.dumps({'batchTimestampMs': time, 'conf': {}})}\n".encode())
        assert Facts(directory.files)._routing.named(run["began"]) == (
            (run["began"], ENTRY.removeprefix("routing/")) if epoch == NEXT else None
        )


def test_a_routing_entry_of_an_older_version(directory, facts):
    entry = golden(f"routing/{EPOCH}")
    assert directory.routing() == RoutingTable(3, (0, 1, 0, 1, 0, 1, 2, 1), epoch=EPOCH)
    found = facts.routing_entry(str(EPOCH))
    assert found.table == directory.routing() == facts.table(EPOCH)
    assert (found.step, found.written_at, found.previous) == (entry["step"], entry["written_at"], "0")
    assert directory.steps()[0]["step"] == entry["step"]
    # Nothing is scheduled, as the other entry is not for the epoch after the logged one.
    assert directory.steps_of(MIGRATION) == (1, None)


def test_a_plan_is_written_as_it_was_read(directory):
    migration = directory.migration()
    assert (migration.id, migration.cancelled, migration.moves_partitions) == (MIGRATION, False, True)
    assert json.loads(migration.plan.to_json()) == golden(PLAN)["plan"]
    assert OPTIONS.as_dict() == golden(PLAN)["options"]


def test_a_savepoint_is_written_as_it_was_read(directory):
    [savepoint] = Savepoints(directory.files).all()
    assert (savepoint.name, savepoint.version, savepoint.size) == ("before-upgrade", 6, 2047)
    assert savepoint.path == f"binshift/{SAVEPOINT}"
    assert json.loads(savepoint.to_json()) == golden(SAVEPOINT)


def test_the_ids_of_a_version_from_the_log_and_from_the_copy(directory):
    places = [(0, 1, "default"), (1, 2, "right-keyToNumValues"), (1, 0, "left-keyToNumValues")]

    def read():
        ids = Facts(directory.files).ids
        return [ids.of(operator, p, store, EPOCH) for operator, p, store in places]

    assert read() == ["a1", "d2", "b0"]
    directory.files.filesystem.delete_file(directory.files.path(f"commits/{EPOCH - 1}"))
    assert read() == ["a1", "d2", "b0"]


@pytest.mark.parametrize("name", ["submit", "cancel", "status"])
def test_requests_are_written_as_the_driver_reads_them(directory, name):
    box = Mailbox(directory)
    plan = MigrationPlan.from_json(json.dumps(golden(PLAN)["plan"]))
    send = {
        "submit": lambda: box.submit(plan, OPTIONS),
        "cancel": lambda: box.cancel(MIGRATION),
        "status": lambda: box._send("status"),
    }
    id = send[name]()
    written = json.loads(directory.files.read(f"binshift/requests/{id}.json"))
    expected = golden(f"requests/{name}.json")
    assert written == expected | {"id": id}


def test_answers_are_read_as_the_driver_writes_them(directory):
    folder = directory.files.path("binshift/answers")
    directory.files.filesystem.create_dir(folder)
    for name in ("submit", "refused"):
        with directory.files.filesystem.open_output_stream(f"{folder}/{name}.json") as out:
            out.write((GOLDEN / "answers" / f"{name}.json").read_bytes())
    box = Mailbox(directory)
    assert box.answer("submit", 5) == {"migration_id": MIGRATION}
    with pytest.raises(PlanError, match="plan again") as refused:
        box.answer("refused", 5)
    error = golden("answers/refused.json")["error"]
    assert (str(refused.value), refused.value.condition, refused.value.parameters) == (
        error["message"], error["condition"], error["parameters"],
    )  # fmt: skip


def test_there_is_a_golden_example_of_each_file():
    """The tree of files in ARCHITECTURE.md has an example of each."""
    tree = (GOLDEN.parents[1] / "ARCHITECTURE.md").read_text().split("└── binshift/")[1].split("```")[0]
    files = [name for line in re.findall(r"^    [├└]── (.+?)  ", tree, re.M) for name in line.split(", ")]
    assert {name.split("/")[0] for name in files} == {f.name for f in GOLDEN.iterdir()}
    assert {name.split("/")[0] for name in FILES} | {"requests", "answers"} == {
        f.name for f in GOLDEN.iterdir()
    }


def names(data):
    """The names of all fields, at any depth."""
    if isinstance(data, dict):
        return set(data).union(*map(names, data.values()))
    return set().union(*map(names, data)) if isinstance(data, list) else set()


def test_fields_are_called_alike_in_all_files_with_underscores():
    found = {f: names(json.loads(f.read_text())) for f in GOLDEN.rglob("*") if f.is_file()}
    assert {n for some in found.values() for n in some if not re.fullmatch(r"[a-z0-9_]+", n)} == set()
    # The API's history names the migration's id and the time of a write differently.
    assert {"migration", "writtenAtMs", "written_at_ms"}.isdisjoint(set().union(*found.values()))
    assert {"migration_id", "written_at"} <= found[GOLDEN / ENTRY] & set(history_table([]).column_names)


def test_golden_plans_are_what_python_plans():
    assert json.loads(golden_plans.FILE.read_text()) == golden_plans.written()
