"""The arguments of `binshift convert` and its refusals, without Spark; tests/local tests the conversion."""

import os
from dataclasses import replace

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkRuntimeError

import binshift
from binshift import ConfigurationError
from binshift.cli.main import cli
from binshift.control.directory import open_directory
from binshift.control.liveness import has_ended
from binshift.conversion import ConversionReport
from unit.checkpoints import Answering

REPORT = ConversionReport(
    checkpoint="in",
    output="in-rocksdb",
    to="rocksdb",
    provider="binshift.StateStoreProvider",
    epoch=7,
    uncommitted_epochs=0,
    partitions_before=5,
    partitions=8,
    stores=("0 stateStoreSave default",),
    needed=True,
)


ROCKSDB = ["in", "--to", "rocksdb"]


def run(*args):
    return CliRunner().invoke(cli, ["convert", *args])


@pytest.fixture(autouse=True)
def somewhere(checkpoint, monkeypatch):
    """The checkpoint `in`; its last run has ended."""
    end(checkpoint)
    checkpoint.root.rename(checkpoint.root.with_name("in"))
    checkpoint.root = checkpoint.root.with_name("in")
    monkeypatch.chdir(checkpoint.root.parent)
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def converted(monkeypatch):
    """The arguments that the conversion itself was called with."""
    calls = []

    def record(*args, **options):
        calls.append((args, options))
        return REPORT

    monkeypatch.setattr("binshift.convert", record)
    return calls


def end(checkpoint, epoch=5):
    checkpoint.write("binshift/ended.json", {"format": 1, "run": "r", "epoch": epoch})


def test_the_command_explains_itself_with_an_example():
    result = run("--help")
    assert result.exit_code == 0
    assert "binshift convert /data/checkpoint --to rocksdb --partitions 8" in result.output


def test_wrong_arguments_are_refused_before_spark_starts():
    for args in (
        ["in"],
        ["in", "--to", "parquet"],
        ["in", "--to", "rocksdb", "--partitions", "0"],
        [],
        [*ROCKSDB, "--conf", "a"],
    ):
        assert run(*args).exit_code == 2


@pytest.mark.parametrize("partitions", [0, -1, True, 2.5, "4"])
def test_partitions_that_are_no_whole_number_are_refused_before_spark_starts(partitions):
    with pytest.raises(ConfigurationError, match="is impossible; give a whole number of at least 1") as refused:
        binshift.convert("in", to="rocksdb", partitions=partitions)
    assert refused.value.condition == "INVALID_VALUE"
    assert refused.value.parameters == {"name": "partitions", "value": partitions}


def test_the_command_hands_its_arguments_on_and_prints_the_report(converted):
    result = run("in", "--to", "rocksdb", "--partitions", "8", "--dry-run")
    options = {"to": "rocksdb", "output": "in-rocksdb", "partitions": 8, "dry_run": True, "force": False}
    assert converted == [(("in",), {**options, "progress": True, "conf": {}})]
    assert "in (StateStoreProvider, epoch 7)" in result.output
    assert "would be converted to in-rocksdb" in result.output
    assert "5 -> 8 partitions" in result.output
    assert '"partitions": 8' in run("in", "--to", "rocksdb", "--json").output


def test_settings_of_spark_are_handed_on(converted):
    run(*ROCKSDB, "--conf", "spark.hadoop.a=b=c", "--jars", "x.jar,y.jar", "--packages", "g:a:1")
    settings = {"spark.hadoop.a": "b=c", "spark.jars": "x.jar,y.jar", "spark.jars.packages": "g:a:1"}
    assert converted[0][1]["conf"] == settings


def test_a_query_that_answers_is_not_converted_unless_that_is_forced(checkpoint, converted):
    (checkpoint.root / "binshift/ended.json").unlink()
    # Any answer, even an error, shows that the query runs.
    with Answering(checkpoint, lambda r: {"error": {"kind": "MigrationError"}}) as driver:
        refused = run(*ROCKSDB)
        assert (refused.exit_code, converted) == (3, [])
        assert "the query of in is running, because it answers; stop it first. With --force" in refused.stderr
        assert run(*ROCKSDB, "--force").exit_code == 0
    assert [r["kind"] for r in driver.seen] == ["status"]
    assert converted[0][1]["force"]


def test_a_query_that_was_killed_is_asked_in_vain_and_converted(checkpoint, converted, monkeypatch):
    monkeypatch.setattr("binshift.cli.convert._ANSWER_SECONDS", 0.05)
    end(checkpoint, epoch=4)
    assert "the query's last run has not recorded its end, so it may still run" in run(*ROCKSDB).stderr
    assert len(converted) == 1
    assert checkpoint.requests() == []


def test_a_run_has_ended_if_nothing_was_logged_after_its_end(checkpoint):
    directory = open_directory("in")
    assert has_ended(directory)
    later = (checkpoint.root / "binshift/ended.json").stat().st_mtime + 1
    for log in ("commits", "offsets"):
        file = checkpoint.root / log / "5"
        os.utime(file, (later, later))
        assert not has_ended(directory)
        os.utime(file, (0, 0))
    assert has_ended(directory)
    checkpoint.commit(6)
    assert not has_ended(directory)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "none does not exist"),
        ("empty", "empty is not the checkpoint"),
        ("in", "in-rocksdb exists"),
    ],
)
def test_what_needs_no_spark_to_be_refused_is_refused_before_it_starts(checkpoint, converted, name, said):
    for file in ("empty/a", "in-rocksdb/a"):
        (checkpoint.root.parent / file).mkdir(parents=True)
    refused = run(name, "--to", "rocksdb")
    assert (refused.exit_code, converted) == (3, [])
    assert said in refused.stderr
    # A conversion that was interrupted may be repeated.
    (checkpoint.root.parent / "in-rocksdb/binshift-conversion.json").touch()
    assert run(*ROCKSDB).exit_code == 0
    (checkpoint.root.parent / "in-rocksdb/metadata").touch()
    assert run(*ROCKSDB).exit_code == 3


@pytest.mark.parametrize("checkpoint_", ["viewfs://cluster/orders", "abc://orders"])
def test_a_checkpoint_that_spark_alone_can_read_is_left_to_it(converted, checkpoint_):
    result = run(checkpoint_, "--to", "rocksdb")
    assert (result.exit_code, len(converted)) == (0, 1)
    assert "could not find out whether the query runs; make sure that it does not" in result.stderr


def test_what_spark_itself_raises_is_one_line(monkeypatch):
    def fail(*_, **__):
        raise PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java exited\n\tat java.lang\n\tat java.io")

    monkeypatch.setattr("binshift.convert", fail)
    result = run(*ROCKSDB)
    assert result.exit_code == 1
    line, _ = result.stderr.splitlines()
    assert line.startswith("BinshiftError: Spark failed, and in is unchanged: [JAVA_GATEWAY_EXITED]")


def test_a_path_may_be_one_of_sparks_own_file_system(converted):
    assert run("none", "--to", "rocksdb", "--conf", "spark.hadoop.fs.defaultFS=hdfs://namenode").exit_code == 0
    assert len(converted) == 1


def test_no_secret_of_a_place_is_printed(monkeypatch):
    given = "s3://KEY:SECRET@bucket/in"
    report = replace(REPORT, checkpoint=given, output="s3://KEY:SECRET@bucket/out")
    monkeypatch.setattr("binshift.convert", lambda *_, **__: report)
    monkeypatch.setattr("binshift.cli.convert._look", lambda *_, **__: None)
    for more in ([], ["--json"]):
        result = run(given, "--to", "rocksdb", *more)
        assert result.exit_code == 0
        assert "s3://***@bucket/out" in result.output
        assert "SECRET" not in result.output
