"""The command group `binshift`. A family of commands is a module with COMMANDS, plugged in below."""

from __future__ import annotations

import sys
from typing import Any

import click

from binshift import __version__, errors
from binshift.cli import convert, fsck, inspect, reading, requesting, running

__all__ = ["EXIT_CODES", "cli", "main"]

_FAMILIES = (reading, requesting, inspect, fsck, convert, running)

#: The most specific class counts. 1 is any other failure, 2 a wrong argument.
EXIT_CODES: dict[type[errors.BinshiftError], int] = {
    errors.ConfigurationError: 3,
    errors.PlanError: 4,
    errors.MigrationTimeout: 6,
    errors.MigrationError: 5,
    errors.UnsupportedOperatorError: 7,
    errors.UnsupportedVersionError: 8,
    errors.StateFormatError: 9,
}


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except errors.BinshiftError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            ctx.exit(next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1))


@click.group(
    cls=_Group,
    epilog="Exit codes: 0 done, 1 failure, 2 wrong argument, 3 ConfigurationError, 4 PlanError, "
    "5 MigrationError, 6 MigrationTimeout, 7 UnsupportedOperatorError, 8 UnsupportedVersionError, "
    "9 StateFormatError.",
)
@click.version_option(__version__, prog_name="binshift")
def cli() -> None:
    """Live rescaling of stateful Structured Streaming queries.

    CHECKPOINT is the checkpoint location of a query: a path, or a URI that pyarrow knows. A query that runs is
    reached through it; one that is stopped finds what was left for it when it starts.
    """


for family in _FAMILIES:
    for command in family.COMMANDS:
        cli.add_command(command)


def main() -> None:
    """The entry point of the program `binshift`."""
    sys.exit(cli())
