"""The command that brings a checkpoint of Spark's providers to binshift, and takes it away again."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

import binshift
from binshift.cli.output import as_json, checkpoint, example, print_json
from binshift.control.directory import ControlDir, require_checkpoint
from binshift.control.files import Files
from binshift.control.liveness import has_ended, query_runs
from binshift.control.uris import is_uri, shown
from binshift.errors import (
    BinshiftError,
    ConfigurationError,
    StorageError,
    UnsupportedOperatorError,
    UnsupportedVersionError,
)

__all__ = ["COMMANDS"]

_FAILS = (ConfigurationError, UnsupportedOperatorError, UnsupportedVersionError)
#: How long to wait for a running query, which looks for requests every five seconds by default.
_ANSWER_SECONDS = 15.0
_MOST_CHARACTERS = 300
#: A conversion that didn't end leaves this file in its output. The next one may replace everything else.
_MARKER = "binshift-conversion.json"


@click.command(
    epilog=example(
        "binshift convert /data/checkpoint --to rocksdb --partitions 8",
        "binshift convert /data/checkpoint --to binshift --output /data/checkpoint2 --dry-run",
        "binshift convert s3://bucket/orders --to rocksdb --packages org.apache.hadoop:hadoop-aws:3.5.0",
        errors=_FAILS,
    )
)
@checkpoint
@click.option(
    "--to",
    type=click.Choice(["binshift", "rocksdb"]),
    required=True,
    help="The provider that continues with the output: binshift's, or Spark's own RocksDB provider.",
)
@click.option("--output", metavar="DIR", help="The directory to write; by default CHECKPOINT-<to>.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="State partitions of the output; by default as many as the checkpoint has.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Convert although the query runs, with the state that it has committed so far. Two queries can then "
    "continue from the same state.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's; repeatable.")
@click.option("--jars", metavar="JARS", help="Jars for Spark, separated by commas.")
@click.option(
    "--packages",
    metavar="COORDINATES",
    help="Packages for Spark, such as those of an object store's file system.",
)
@as_json
def convert(
    checkpoint: str,
    to: str,
    output: str | None,
    partitions: int | None,
    force: bool,
    dry_run: bool,
    conf: tuple[str, ...],
    jars: str | None,
    packages: str | None,
    as_json: bool,
) -> None:
    """Rewrite a checkpoint for another state-store provider.

    Its query has to be stopped. If it may run, it is asked first, and refused if it answers.

    Runs Spark on all cores of this machine. CHECKPOINT is only read; the output is complete when the
    command ends with exit code 0, and until then no query starts from it. A conversion that was
    interrupted is simply started again. A checkpoint of Spark's RocksDB provider needs no conversion to
    binshift: start the query on it in a session of binshift.
    """
    settings = dict(_setting(given) for given in conf)
    settings |= {
        key: value for key, value in (("spark.jars", jars), ("spark.jars.packages", packages)) if value
    }
    output = output if output is not None else f"{checkpoint.rstrip('/')}-{to}"
    _look(checkpoint, output, settings, is_asked=not force)
    try:
        report = binshift.convert(
            checkpoint,
            to=to,
            output=output,
            partitions=partitions,
            dry_run=dry_run,
            force=force,
            progress=True,
            conf=settings,
        )
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise BinshiftError(
            f"Spark failed, and {shown(checkpoint)} is unchanged: {said[:_MOST_CHARACTERS]}; Spark's output "
            "above may tell you more",
            condition="CONVERSION_FAILED",
            checkpoint=shown(checkpoint),
        ) from error
    if as_json:
        places = {"checkpoint": shown(report.checkpoint), "output": shown(report.output)}
        print_json(asdict(report) | places)
    else:
        click.echo(str(report))


def _look(checkpoint: str, output: str, settings: dict[str, str], *, is_asked: bool) -> None:
    """Checks what can be checked without a JVM; Spark checks everything again.

    Raises
    ------
    ConfigurationError
        If there is no such checkpoint, its query runs, or the output exists.
    """
    try:
        files = Files(checkpoint)
        if _is_of_spark(checkpoint, settings) and not files.exists("offsets"):
            return
        require_checkpoint(files)
        there = Files(output)
        is_free = there.is_free(_MARKER)
    except (ConfigurationError, StorageError) as error:
        if isinstance(error, ConfigurationError) and error.condition != "FILE_SYSTEM_UNKNOWN":
            raise
        # Spark may know a file system that pyarrow doesn't, or have other credentials.
        click.echo(f"could not find out whether the query runs; make sure that it does not ({error})", err=True)
        return
    if not is_free:
        raise ConfigurationError(
            f"the output {there.name} exists and is not empty; name another directory with --output",
            condition="OUTPUT_NOT_EMPTY",
            output=there.name,
        )
    directory = ControlDir(files)
    if not is_asked or directory.layout() is None or has_ended(directory):
        return
    click.echo(
        f"the query's last run has not recorded its end, so it may still run; waiting up to "
        f"{_ANSWER_SECONDS:g} s for its answer",
        err=True,
    )
    if query_runs(directory, _ANSWER_SECONDS):
        raise ConfigurationError(
            f"the query of {files.name} is running, because it answers; stop it first. With --force, the state "
            "that it has committed is converted, and two queries can continue from it",
            condition="QUERY_RUNS",
            checkpoint=files.name,
        )


def _is_of_spark(path: str, settings: dict[str, str]) -> bool:
    """True if Spark may take a path without a scheme for one of another file system than Python does."""
    configured = {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"} & os.environ.keys()
    return not is_uri(path) and (bool(configured) or "spark.hadoop.fs.defaultFS" in settings)


def _setting(given: str) -> tuple[str, str]:
    key, equals, value = given.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"'{given}' is not a setting; write KEY=VALUE", param_hint="--conf")
    return key, value


COMMANDS = (convert,)
