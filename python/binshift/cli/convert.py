"""The command that brings a checkpoint of Spark's providers to binshift, and takes it away again."""

from __future__ import annotations

from dataclasses import asdict

import click

import binshift
from binshift.cli.output import as_json, checkpoint, example, print_json
from binshift.control.uris import shown
from binshift.errors import ConfigurationError, UnsupportedOperatorError, UnsupportedVersionError

__all__ = ["COMMANDS"]

_FAILS = (ConfigurationError, UnsupportedOperatorError, UnsupportedVersionError)


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
    help="The provider that goes on: binshift's, or Spark's own RocksDB provider.",
)
@click.option("--output", metavar="DIR", help="The directory to write; by default CHECKPOINT-<to>.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="State partitions of the output; by default as many as there are.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's; repeatable.")
@click.option("--jars", metavar="JARS", help="Jars for Spark, with commas between them.")
@click.option(
    "--packages", metavar="COORDINATES", help="Packages for Spark, as those of an object store's file system."
)
@as_json
def convert(
    checkpoint: str,
    to: str,
    output: str | None,
    partitions: int | None,
    dry_run: bool,
    conf: tuple[str, ...],
    jars: str | None,
    packages: str | None,
    as_json: bool,
) -> None:
    """Rewrite a checkpoint for another state-store provider.

    Its query has to be stopped.

    Runs Spark on all cores of this machine. CHECKPOINT is only read; the output is complete when the
    command ends with exit code 0, and until then no query starts from it. A conversion that was
    interrupted is simply started again. A checkpoint of Spark's RocksDB provider needs no conversion to
    binshift: start the query on it in a session of binshift.
    """
    settings = dict(_setting(given) for given in conf)
    settings |= {
        key: value for key, value in (("spark.jars", jars), ("spark.jars.packages", packages)) if value
    }
    report = binshift.convert(
        checkpoint,
        to=to,
        output=output,
        partitions=partitions,
        dry_run=dry_run,
        progress=True,
        conf=settings,
    )
    if as_json:
        places = {"checkpoint": shown(report.checkpoint), "output": shown(report.output)}
        print_json(asdict(report) | places)
    else:
        click.echo(str(report))


def _setting(given: str) -> tuple[str, str]:
    key, equals, value = given.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"'{given}' is no setting; write KEY=VALUE", param_hint="--conf")
    return key, value


COMMANDS = (convert,)
