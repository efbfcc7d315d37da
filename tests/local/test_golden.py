"""The files of `binshift/` as the parsers of the JVM read and write them; see tests/golden.py."""

import json
import os
import zlib

import pytest

from golden import ENTRY, EPOCH, FILES, PLAN, checkpoint, golden
from harness import entries, until
from local.queries import count_by_key

MIGRATION = "0b6c3a52-6c0f-4c1e-9a57-3f7f0d6f5f10"


@pytest.fixture
def jvm(spark):
    return spark._jvm.org.apache.spark.sql.binshift.TestGolden


def shape(data):
    """The names and types in a file; of a list, those of its first element."""
    if isinstance(data, dict):
        return {name: shape(value) for name, value in data.items()}
    return [shape(data[0])] if isinstance(data, list) and data else type(data).__name__


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_read_is_written_as_it_was(jvm, tmp_path, name):
    root = checkpoint(tmp_path)
    jvm.rewrite(str(root), name)
    assert json.loads((root / "binshift" / name).read_text()) == golden(name)


def test_what_older_versions_wrote_is_read(jvm, tmp_path):
    table = golden(f"routing/{EPOCH}")
    checksum = zlib.crc32(f"{table['partitions']}:{','.join(map(str, table['assignment']))}".encode())
    runs = [{"run": r["run"], "routing": r["routing"]} for r in reversed(golden("runs.json")["runs"])]
    found = json.loads(jvm.old(str(checkpoint(tmp_path)), EPOCH))
    assert found == {"name": f"{EPOCH}:{checksum:08x}", "previous": "0", "runs": runs}
    # The entry that came after it calls it by that name.
    assert golden(ENTRY)["previous"] == f"{EPOCH}-{checksum:08x}"


def test_both_languages_find_the_same_in_a_file(spark, jvm, tmp_path):
    root = checkpoint(tmp_path)
    plan = golden(PLAN)["plan"]
    assert plan.pop("format") == 1
    assert plan["source"].pop("epoch") == 0
    assert json.loads(jvm.plan(str(root))) == plan
    # Nothing hangs on the name of the strategy.
    file = root / "binshift" / PLAN
    stored = json.loads(file.read_text())
    for is_on_demand in (False, True):
        file.write_text(
            json.dumps(stored | {"plan": stored["plan"] | {"strategy": "on-demand", "on_demand": is_on_demand}})
        )
        assert json.loads(jvm.plan(str(root)))["on_demand"] is is_on_demand
    # The content of the file, number by number; from the fifth bin on, numbers of two bytes.
    bins = range(8)
    numbers = {"keys": list(bins), "bytes": [30 * b if b < 4 else 256 + b for b in bins], "rows": list(bins)}
    assert json.loads(jvm.statistics(str(root))) == numbers
    ids = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestIds
    (root / "commits" / str(EPOCH - 1)).unlink()
    (root / "commits" / f".{EPOCH - 1}.crc").unlink(missing_ok=True)
    assert ids.of(str(root), EPOCH, 0, 1, "default") == "a1"
    assert ids.of(str(root), EPOCH, 1, 2, "right-keyToNumValues") == "d2"


def test_a_query_takes_golden_requests_and_writes_files_of_the_golden_forms(stream, tmp_path):
    run = stream(count_by_key, conf={"spark.sql.streaming.stateStore.binshift.bins": "8"}).start()
    run.run(0)
    control = run.checkpoint / "binshift"

    def ask(name, **changed):
        """The answer to a golden request, whose epoch and executor may be others."""
        request = golden(f"requests/{name}.json") | changed
        hidden = tmp_path / "request"
        hidden.write_text(json.dumps(request))
        (control / "requests").mkdir(exist_ok=True)
        os.replace(hidden, control / "requests" / f"{request['id']}.json")
        answer = control / "answers" / f"{request['id']}.json"
        assert until(answer.exists)
        return json.loads(answer.read_text())

    foreign = golden(PLAN)["plan"]
    foreign["source"]["assignment"] = foreign["source"]["assignment"][::-1]
    options = golden(PLAN)["options"] | {"start_epoch": 1, "vacate": None, "places": {}}
    refused = golden("answers/refused.json")
    assert ask("submit", id=refused["id"], plan=foreign, options=options) == refused
    assert ask("status")["result"].keys() == {"migration_id", "progress", "routing"}
    assert ask("submit", options=options) == golden("answers/submit.json")
    written = json.loads((control / PLAN).read_text())
    options.pop("vacate")
    expected = golden(PLAN) | {"options": options}
    assert written.pop("application").startswith("local-")
    assert expected.pop("application").startswith("local-")
    assert written == expected
    run.run(1, 2)
    assert ask("cancel") == {"format": 1, "id": golden("requests/cancel.json")["id"], "epoch": 2, "result": {}}
    run.stop()
    expected = shape(golden("layout.json"))
    expected.pop("taken_over_at")
    assert shape(json.loads((control / "layout.json").read_text())) == expected
    _, newest = max(entries(run.checkpoint).items())
    assert shape(json.loads(newest.read_text())) == shape(golden(ENTRY))
    assert shape(json.loads((control / "runs/1").read_text())) == shape(golden("runs/3"))
    for name in ("ended.json", "statistics.json"):
        assert shape(json.loads((control / name).read_text())) == shape(golden(name)), name
