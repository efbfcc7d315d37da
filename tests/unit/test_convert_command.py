"""What the command understands; what it does is tested where there is Spark."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

import binshift
from binshift import ConfigurationError
from binshift.cli.main import cli
from binshift.conversion import ConversionReport

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
    with pytest.raises(ConfigurationError, match="is impossible; give a whole number from 1 on") as refused:
        binshift.convert("in", to="rocksdb", partitions=partitions)
    assert refused.value.condition == "INVALID_VALUE"
    assert refused.value.parameters == {"name": "partitions", "value": partitions}


def test_the_command_hands_its_arguments_on_and_prints_the_report(monkeypatch):
    calls = []

    def record(*args, **options):
        calls.append((args, options))
        return REPORT

    monkeypatch.setattr("binshift.convert", record)
    result = run("in", "--to", "rocksdb", "--partitions", "8", "--dry-run")
    options = {"to": "rocksdb", "output": None, "partitions": 8, "dry_run": True, "progress": True, "conf": {}}
    assert calls == [(("in",), options)]
    assert "in (StateStoreProvider, epoch 7)" in result.output
    assert "would be converted to in-rocksdb" in result.output
    assert "5 -> 8 partitions" in result.output
    assert '"partitions": 8' in run("in", "--to", "rocksdb", "--json").output


def test_settings_of_spark_are_handed_on(monkeypatch):
    given = {}

    def record(*_, **options):
        given.update(options)
        return REPORT

    monkeypatch.setattr("binshift.convert", record)
    run(*ROCKSDB, "--conf", "spark.hadoop.a=b=c", "--jars", "x.jar,y.jar", "--packages", "g:a:1")
    settings = {"spark.hadoop.a": "b=c", "spark.jars": "x.jar,y.jar", "spark.jars.packages": "g:a:1"}
    assert given["conf"] == settings


def test_no_secret_of_a_place_is_printed(monkeypatch):
    given = "s3://KEY:SECRET@bucket/in"
    report = replace(REPORT, checkpoint=given, output="s3://KEY:SECRET@bucket/out")
    monkeypatch.setattr("binshift.convert", lambda *_, **__: report)
    for more in ([], ["--json"]):
        result = run(given, "--to", "rocksdb", *more)
        assert result.exit_code == 0
        assert "s3://***@bucket/out" in result.output
        assert "SECRET" not in result.output
