"""Each decoder copes with random and damaged input; `make fuzz` tries many more inputs."""

import io
import json
import zipfile

import pytest

from binshift.control.uris import shown, without_secrets
from binshift.errors import StateFormatError
from binshift.inspect.storage.database import Database, Snapshot
from fuzz.feeding import feed
from fuzz.held import Held
from fuzz.mutating import Mutator
from fuzz.targets import TARGETS, checksum, metadata, metadata_of, schema, snapshot, snapshots, written

_INPUTS = 400


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_damaged_is_decoded_or_refused_by_name(name):
    outcome = feed(name, TARGETS[name], max(2, _INPUTS // TARGETS[name].cost))
    assert outcome.failures == []


def test_inputs_of_a_seed_are_the_same_again():
    made = [[m.input() for _ in range(50)] for m in (Mutator([b'{"a": [1, 2]}', b"xyz"], 5) for _ in range(2))]
    assert made[0] == made[1]
    assert len(set(made[0])) > 30


OUTSIDE = ["../x", "..", "/etc/hostname", "a/b", "", "x\0y", ".", None, 5]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("field", ["dfsSstFileName", "localFileName"])
def test_a_snapshot_names_no_file_outside_of_its_directory(field, name):
    archive = next(iter(snapshots().values()))
    version, _, body = metadata_of(archive).partition(b"\n")
    said = json.loads(body)
    said["sstFiles"] = [{"localFileName": "1.sst", "dfsSstFileName": "1.sst", "sizeBytes": 1, field: name}]
    with pytest.raises(StateFormatError, match="is not the name of a file"):
        metadata(version + b"\n" + json.dumps(said).encode())


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_metadata_of_an_operator_names_no_store_outside_of_the_checkpoint(name):
    path = "state/0/_metadata/v2/0"
    version, _, body = written()[path].partition(b"\n")
    said = json.loads(body)
    said["stateStoreInfo"][0]["storeName"] = name
    with pytest.raises(StateFormatError, match="is not the name of a file"):
        schema(Held({**written(), path: version + b"\n" + json.dumps(said).encode()}))


def test_an_archive_is_not_unpacked_if_it_would_fill_the_disk(monkeypatch):
    monkeypatch.setattr("binshift.inspect.storage.database._ARCHIVE_BYTES", 10)
    path = next(iter(snapshots()))
    with pytest.raises(StateFormatError, match="its files would have"):
        snapshot(Held(written()), path)


def test_the_options_of_a_snapshot_lead_rocksdb_to_no_other_directory(tmp_path):
    path, files = next(iter(snapshots())), written()
    elsewhere = tmp_path / "elsewhere"
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(files[path])) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.startswith("OPTIONS"):
                lines = f"[DBOptions]\n  wal_dir={elsewhere}\n  db_log_dir={elsewhere}\n"
                assert b"[DBOptions]\n" in data
                data = data.replace(b"[DBOptions]\n", lines.encode())
            new.writestr(name, data)
    inner = tmp_path / "inner"
    inner.mkdir()
    found = Snapshot(Held({**files, path: out.getvalue()}), path, inner)
    database = Database(inner, found, b",", is_read_only=False)
    database.put(b"key", b"value")
    assert dict(database.rows())[b"key"] == b"value"
    database.close()
    assert list(tmp_path.iterdir()) == []


def test_json_that_is_nested_deeply_is_damage():
    deep = b"[" * 100_000
    with pytest.raises(StateFormatError):
        checksum(Held({"state/0/0/1.zip": b"", "state/0/0/1.zip.crc": deep}))


def test_of_what_is_no_uri_only_the_scheme_is_shown():
    assert shown("s3://key:secret@[bucket/path") == "s3://***"
    assert without_secrets("cannot open s3://key:secret@[x", "s3://key:secret@[x") == "cannot open s3://***"
