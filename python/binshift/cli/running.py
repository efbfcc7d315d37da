"""Commands without a checkpoint: `jar`, and `demo` and `bench`, which only a source tree has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

import binshift
from binshift.cli.output import example
from binshift.errors import ConfigurationError, UnsupportedVersionError
from binshift.session import jar_for

__all__ = ["COMMANDS"]

_BENCHMARKS = {"suite": "benchmarks/suite.py", "timers": "benchmarks/timers.py"}
_PASSED_ON = {"ignore_unknown_options": True}


@click.command(
    epilog=example(
        'spark-submit --jars "$(binshift jar)" app.py', errors=(ConfigurationError, UnsupportedVersionError)
    )
)
@click.option("--spark", metavar="VERSION", help="That of another Spark than the installed pyspark.")
def jar(spark: str | None) -> None:
    """Print the path of the jar, for --jars and spark.jars.

    It is needed where binshift.configure() is not called, or finds no class loader that takes the jar.
    """
    click.echo(str(binshift.jar_path() if spark is None else jar_for(spark)))


@click.command(
    context_settings=_PASSED_ON,
    epilog=example("binshift demo --picture demo.png", errors=(ConfigurationError,)),
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def demo(arguments: tuple[str, ...]) -> None:
    """Rescale a query over real flights, and check its result.

    ARGUMENTS are those of python/examples/flights.
    """
    _run("examples/flights", arguments)


@click.command(
    context_settings=_PASSED_ON,
    epilog=example("binshift bench suite --size quick", errors=(ConfigurationError,)),
)
@click.argument("name", type=click.Choice(sorted(_BENCHMARKS)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> None:
    """Measure migrations, timers, and what the provider costs.

    ARGUMENTS are those of the benchmark.
    """
    _run(_BENCHMARKS[name], arguments)


COMMANDS = (jar, demo, bench)


def _run(script: str, arguments: tuple[str, ...]) -> None:
    """Runs a script of the source tree from which this package is installed, and exits with its exit code."""
    file = Path(binshift.__file__).parents[1] / script
    if not file.exists():
        raise ConfigurationError(
            f"{file} is not there: demo and benchmarks are in the source tree, not in the wheel; get the "
            f"source of binshift {binshift.__version__}, run 'make setup' in it, and use its .venv",
            condition="SOURCES_MISSING",
        )
    sys.exit(subprocess.run([sys.executable, str(file), *arguments], check=False).returncode)
