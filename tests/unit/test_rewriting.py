"""What a copy of a checkpoint names otherwise: itself, and operators with other numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import fs

from binshift import ConfigurationError, StateFormatError
from binshift.control.files import Files
from binshift.savepoints.rewriting import Rewriting, number_of

NAMES = {0: "dedupe", 1: "symmetricHashJoin", 2: "stateStoreSave"}


def rewriting(tmp_path: Path, *dropped: int, target: Files | None = None) -> Rewriting:
    return Rewriting(Files(tmp_path / "from"), target or Files(tmp_path / "to"), NAMES, dropped)


def metadata(schema: str, number: int = 1) -> bytes:
    store = {"storeName": "default", "stateSchemaFilePaths": [f"{schema}/a", f"{schema}/b"]}
    info = {"operatorInfo": {"operatorId": number, "operatorName": "join"}, "stateStoreInfo": [store]}
    return b"v2\n" + json.dumps(info).encode()


def test_paths_of_operators_after_one_that_is_left_out_have_other_numbers(tmp_path):
    less = rewriting(tmp_path, 1)
    paths = {
        "state/0/3/5.zip": "state/0/3/5.zip",
        "state/1/3/5.zip": None,
        "state/2/3/5.zip": "state/1/3/5.zip",
        "state/2/0/left-keyToNumValues/_metadata/schema": "state/1/0/left-keyToNumValues/_metadata/schema",
        "binshift/changed_keys/1": None,
        "binshift/changed_keys/2": "binshift/changed_keys/1",
        "binshift/statistics.json": None,
        "binshift/layout.json": "binshift/layout.json",
        "offsets/2": "offsets/2",
    }
    assert {path: less.path(path) for path in paths} == paths
    assert {path: rewriting(tmp_path).path(path) for path in paths} == {path: path for path in paths}
    assert [number_of(p) for p in ("state/12/0", "offsets/2")] == [12, None]


def test_files_that_name_operators_name_those_that_are_left(tmp_path):
    less = rewriting(tmp_path, 0)

    def said(path: str, data: object, head: str = "") -> object:
        text = less.content(path, f"{head}{json.dumps(data)}".encode()).decode()
        assert text.startswith(head)
        return json.loads(text.removeprefix(head))

    ids = {"0": [["a"]], "1": [["b"]], "2": [["c"]]}
    assert said("binshift/ids/7", ids) == {"0": [["b"]], "1": [["c"]]}
    commit = {"nextBatchWatermarkMs": 5, "stateUniqueIds": ids}
    assert said("commits/3", commit, "v2\n") == {**commit, "stateUniqueIds": {"0": [["b"]], "1": [["c"]]}}
    assert said("commits/3", {"nextBatchWatermarkMs": 5}, "v1\n") == {"nextBatchWatermarkMs": 5}
    operators = [{"id": n, "name": name, "storage": "binned"} for n, name in NAMES.items()]
    left = [{**operators[1], "id": 0}, {**operators[2], "id": 1}]
    assert said("binshift/layout.json", {"bins": 8, "operators": operators}) == {"bins": 8, "operators": left}
    assert said("binshift/changed_keys/2", {"operator": 2, "columns": ["k"]}) == {
        "operator": 1,
        "columns": ["k"],
    }
    info = {"operatorInfo": {"operatorId": 2, "operatorName": "a"}, "stateStoreInfo": [{"storeName": "b"}]}
    assert said("state/2/_metadata/metadata", info, "v1\n") == {
        **info,
        "operatorInfo": {"operatorId": 1, "operatorName": "a"},
    }
    assert less.content("offsets/3", b"v1\n{\n}\n{}") == b"v1\n{\n}\n{}"
    assert less.content("state/2/_stateSchema/default/0_a", b"\x00") == b"\x00"


def test_without_such_an_operator_nothing_changes_to_the_byte(tmp_path):
    same = rewriting(tmp_path)
    for path in ("commits/3", "binshift/layout.json", "binshift/ids/7", "state/2/_metadata/metadata"):
        data = b'v1\n{"operatorInfo": {"operatorId": 2}, "stateStoreInfo":  []}'
        assert same.content(path, data) == data
    with pytest.raises(ConfigurationError, match="has no operator 3; its stateful operators: 0 dedupe, 1 symm"):
        rewriting(tmp_path, 3)


@pytest.mark.parametrize("scheme", ["file:", "file://", "hdfs://namenode:8020", ""])
def test_paths_of_schemas_lead_into_the_copy(tmp_path, scheme):
    there = f"{scheme}{tmp_path}/from/state/2/_stateSchema/default"
    data = rewriting(tmp_path, 0).content("state/2/_metadata/v2/4", metadata(there, 2))
    [store] = json.loads(data.split(b"\n", 1)[1])["stateStoreInfo"]
    moved = f"{scheme}{tmp_path}/to/state/1/_stateSchema/default"
    assert store["stateSchemaFilePaths"] == [f"{moved}/a", f"{moved}/b"]


def test_a_checkpoint_that_was_moved_to_a_path_that_ends_like_this_one_is_not_taken_for_it(tmp_path):
    there = f"file:/mnt{tmp_path}/from/state/2/_stateSchema/default"
    data = rewriting(tmp_path, 0).content("state/2/_metadata/v2/4", metadata(there, 2))
    [store] = json.loads(data.split(b"\n", 1)[1])["stateStoreInfo"]
    assert store["stateSchemaFilePaths"][0] == f"file:{tmp_path}/to/state/1/_stateSchema/default/a"


def test_paths_of_schemas_lead_to_another_store_or_from_a_checkpoint_that_was_moved(tmp_path):
    bucket = Files("bucket/to", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    bucket.name = "s3://bucket/to?region=here"
    for target, moved in ((bucket, "s3a://bucket/to"), (Files(tmp_path / "to"), f"file:{tmp_path}/to")):
        data = rewriting(tmp_path, target=target).content(
            "state/1/_metadata/v2/4", metadata("file:/elsewhere/state/1/_stateSchema/default")
        )
        [store] = json.loads(data.split(b"\n", 1)[1])["stateStoreInfo"]
        assert store["stateSchemaFilePaths"][0] == f"{moved}/state/1/_stateSchema/default/a"


def test_a_damaged_file_is_named(tmp_path):
    with pytest.raises(StateFormatError, match="commits/3"):
        rewriting(tmp_path, 0).content("commits/3", b'v2\n{"stateUniqueIds": {"7": []}}')
    with pytest.raises(StateFormatError, match="_metadata/v2/4"):
        rewriting(tmp_path).content("state/1/_metadata/v2/4", b"v2\n{")
