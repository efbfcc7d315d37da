"""Commands that run what only a source tree has: demo and bench."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

import binshift
from binshift.cli.output import example
from binshift.errors import ConfigurationError

__all__ = ["COMMANDS"]

_BENCHMARKS = {"suite": "benchmarks/suite.py", "timers": "benchmarks/timers.py"}
_PASSED_ON = {"ignore_unknown_options": True}


@click.command(context_settings=_PASSED_ON, epilog=example("binshift demo --picture demo.png"))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def demo(arguments: tuple[str, ...]) -> None:
    """Rescales a query over 336,776 real flights while it runs, and checks its result.

    ARGUMENTS are those of python/examples/flights.py.
    """
    _run("examples/flights.py", arguments)


@click.command(context_settings=_PASSED_ON, epilog=example("binshift bench suite --size quick"))
@click.argument("name", type=click.Choice(sorted(_BENCHMARKS)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> None:
    """Measures migrations and what the provider costs, or timers, beside Spark's own provider.

    ARGUMENTS are those of the benchmark.
    """
    _run(_BENCHMARKS[name], arguments)


COMMANDS = (demo, bench)


def _run(script: str, arguments: tuple[str, ...]) -> None:
    """Runs a script of the source tree that this package is installed from; ends with its exit code."""
    file = Path(binshift.__file__).parents[1] / script
    if not file.is_file():
        raise ConfigurationError(
            f"{file} is not there: demo and benchmarks are in the source tree, not in the wheel; get the "
            f"source of binshift {binshift.__version__}, run 'make setup' in it, and use its .venv/bin/binshift"
        )
    sys.exit(subprocess.run([sys.executable, str(file), *arguments], check=False).returncode)
