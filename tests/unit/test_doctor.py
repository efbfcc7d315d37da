"""The findings of `binshift doctor` on file systems, checkpoints and settings."""

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

import binshift
from binshift import RoutingTable
from binshift.cli.main import cli
from binshift.control import trial
from binshift.control.checks import Check, Verdict
from binshift.control.doctor import seconds_of, settings_checks
from binshift.control.files import Files
from binshift.session import CHANGELOG_KEY, PROVIDER, PROVIDER_KEY, STOCK_PROVIDER
from unit.checkpoints import Answering, HandWritten

CLUSTER: dict[str, Any] = {
    "binshift": binshift.__version__,
    "spark": "4.3.0",
    "is_local": False,
    "executors": 2,
    "slots": 8,
    "partitions": 8,
    "settings": {CHANGELOG_KEY: "true"},
}


@pytest.fixture
def checkpoint(tmp_path):
    return HandWritten(tmp_path / "checkpoint", RoutingTable(2, (0, 1) * 16), committed=5)


def doctor(place, *arguments, wait=0, code=0):
    result = CliRunner().invoke(cli, ["doctor", str(place), "--wait", str(wait), "--json", *arguments])
    assert result.exit_code == code, result.output
    return {c["about"]: c for c in map(json.loads, result.stdout.splitlines())}


def advice(**changes):
    settings = changes.pop("settings", {})
    told = {**CLUSTER, **changes, "settings": {**CLUSTER["settings"], **settings}}
    scheme = told.pop("scheme", "")
    return {c.about for c in settings_checks(told, scheme) if c.verdict is Verdict.ADVICE}


def files(folder):
    return sorted(f.relative_to(folder) for f in folder.rglob("*") if f.is_file())


def test_a_sound_checkpoint_is_fine_and_nothing_is_left_in_it(checkpoint):
    before = sorted(checkpoint.root.rglob("*"))
    checks = doctor(checkpoint.root)
    assert {a: c["verdict"] for a, c in checks.items()} == {"file system": "fine", "checkpoint": "fine"}
    assert "32 bins in 2 partitions" in checks["checkpoint"]["found"]
    assert sorted(checkpoint.root.rglob("*")) == before


def test_a_place_that_is_not_there_yet_is_tried_and_is_not_there_afterwards_either(tmp_path):
    place = tmp_path / "mistyped/checkpoint"
    checks = doctor(place)
    assert checks["file system"]["verdict"] == "fine"
    assert checks["checkpoint"]["verdict"] == "advice"
    assert checks["checkpoint"]["found"] == f"{place} does not exist yet"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_no_query_has_used_yet_is_tried_and_stays_as_it_is(tmp_path):
    assert doctor(tmp_path)["checkpoint"]["found"] == "no query has run here yet"
    assert list(tmp_path.iterdir()) == []


def test_what_others_write_meanwhile_stays_with_its_directories(tmp_path, monkeypatch):
    request = tmp_path / "binshift/requests/of-another.json"

    def tried(files, name):
        request.parent.mkdir(parents=True)
        request.touch()
        return Check("file system", Verdict.FINE, "")

    monkeypatch.setattr(trial, "_tried", tried)
    doctor(tmp_path)
    assert files(tmp_path) == [request.relative_to(tmp_path)]


def test_what_others_write_while_the_directories_are_deleted_stays(tmp_path, monkeypatch):
    request = tmp_path / "binshift/requests/of-another.json"
    rmdir = os.rmdir

    def late(path):
        request.touch()
        rmdir(path)

    monkeypatch.setattr(os, "rmdir", late)
    doctor(tmp_path)
    assert files(tmp_path) == [request.relative_to(tmp_path)]


def test_only_files_are_deleted_where_directories_cannot_be_without_what_is_in_them(tmp_path):
    system = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert trial.try_files(Files("place", system)).verdict is Verdict.FINE
    assert files(tmp_path) == []
    assert (tmp_path / "place/binshift/requests").is_dir()


def test_a_file_system_that_cannot_be_written_is_a_problem_and_nothing_else_is_looked_at():
    # Not even root may make a directory there.
    checks = doctor("/proc/self", code=1)
    assert list(checks) == ["file system"]
    assert "cannot make the directory /proc/self/binshift/requests" in checks["file system"]["found"]


def test_a_damaged_checkpoint_is_a_problem(checkpoint):
    (checkpoint.root / "binshift/routing/0").unlink()
    assert "no routing entry" in doctor(checkpoint.root, code=1)["checkpoint"]["found"]


@pytest.mark.parametrize(
    ("provider", "verdict", "code", "said"),
    [
        (STOCK_PROVIDER, "advice", 0, "binshift.configure()"),
        (PROVIDER, "problem", 1, "restore the directory binshift/"),
        ("org.example.Other", "problem", 1, "binshift convert"),
    ],
)
def test_a_checkpoint_of_another_provider_has_the_way_from_there(tmp_path, provider, verdict, code, said):
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text("v1\n" + json.dumps({"conf": {PROVIDER_KEY: provider}}))
    found = doctor(tmp_path, code=code)["checkpoint"]
    assert found["verdict"] == verdict
    assert said in found["then"]


def test_bins_that_are_few_for_the_partitions_are_told(tmp_path):
    few = HandWritten(tmp_path / "few", RoutingTable(4, (0, 1, 2, 3) * 2), committed=1)
    bins = doctor(few.root)["bins"]
    assert "2.0 bins a partition" in bins["found"]
    # The number of bins is only set when a checkpoint in Spark's form is taken over, so it has to be converted.
    assert f"'binshift convert {few.root} --to rocksdb'" in bins["then"]
    assert "configure(bins=...)" in bins["then"]


@pytest.mark.parametrize(
    ("name", "verdict"), [("3.changelog", "fine"), ("3_abc.changelog", "fine"), ("3.zip", "advice")]
)
def test_a_query_that_writes_no_changelogs_prepares_nothing(checkpoint, name, verdict):
    store = checkpoint.root / "state/0/0"
    store.mkdir(parents=True)
    (store / name).touch()
    assert doctor(checkpoint.root)["changelogs"]["verdict"] == verdict


def test_a_query_that_does_not_run_is_told_and_its_request_is_taken_back(checkpoint):
    checks = doctor(checkpoint.root, wait=0.3)
    assert checks["query"]["verdict"] == "advice"
    assert "no answer in 0.3 s" in checks["query"]["found"]
    assert checkpoint.requests() == []


def test_a_query_that_runs_is_asked_for_its_settings(checkpoint):
    told = {**CLUSTER, "settings": {}}
    with Answering(checkpoint, lambda request: {"result": told}) as answering:
        checks = doctor(checkpoint.root, wait=10)
    assert [r["kind"] for r in answering.seen] == ["settings"]
    assert checks["query"]["verdict"] == "fine"
    assert checks["changelogs"]["verdict"] == "advice"


def test_a_driver_that_does_not_know_the_request_is_a_problem_of_versions(checkpoint):
    error: dict[str, Any] = {
        "kind": "ConfigurationError",
        "message": "its kind is settings",
        "condition": "REQUEST_UNREADABLE",
    }
    error |= {"parameters": {}}
    with Answering(checkpoint, lambda request: {"error": error}):
        checks = doctor(checkpoint.root, wait=10, code=1)
    assert "same version" in checks["query"]["then"]


def test_a_request_that_the_driver_refuses_is_no_problem_of_versions(checkpoint):
    error: dict[str, Any] = {
        "kind": "ConfigurationError",
        "message": "it is not signed; set BINSHIFT_REQUESTS_SECRET_FILE",
        "condition": "REQUEST_NOT_SIGNED",
        "parameters": {},
    }
    with Answering(checkpoint, lambda request: {"error": error}):
        checks = doctor(checkpoint.root, wait=10, code=1)
    assert (checks["query"]["found"], checks["query"]["then"]) == (error["message"], "")


def test_the_advice_follows_from_the_settings():
    assert advice() == set()
    assert advice(partitions=9) == {"executors"}
    assert advice(partitions=9, is_local=True) == set()
    assert advice(partitions=None) == set()
    assert advice(binshift="0.0.1") == {"versions"}
    assert advice(settings={CHANGELOG_KEY: "false"}) == {"changelogs"}
    assert advice(settings={"spark.locality.wait": "500ms"}) == {"locality"}
    assert advice(settings={"spark.locality.wait": "500ms", "spark.locality.wait.process": "30s"}) == set()
    assert advice(settings={"spark.sql.streaming.minBatchesToRetain": "2"}) == {"retention"}
    speculation, of_format = "spark.speculation", "spark.sql.streaming.stateStore.checkpointFormatVersion"
    assert advice(settings={speculation: "true"}) == {"speculation"}
    assert advice(settings={speculation: "true", of_format: "2"}) == set()
    assert advice(scheme="s3a") == {"object store"}
    manager = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    key = "spark.sql.streaming.checkpointFileManagerClass"
    assert advice(scheme="s3a", settings={key: manager}) == set()


@given(
    st.integers(0, 10_000), st.sampled_from([("ms", 0.001), ("s", 1), ("min", 60), ("h", 3600), ("", 0.001)])
)
def test_times_are_read_as_spark_writes_them(number, unit):
    assert seconds_of(f"{number}{unit[0]}") == pytest.approx(number * unit[1])
