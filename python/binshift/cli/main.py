"""The command group `binshift`. A family of commands is a module with COMMANDS, plugged in below."""

from __future__ import annotations

import sys
from typing import Any

import click

from binshift import __version__, errors
from binshift.cli import convert, doctor, fsck, reading, requesting, running, state
from binshift.cli.exits import EXIT_CODES, described, exit_code_of

__all__ = ["cli", "main"]

_FAMILIES = (reading, requesting, state, fsck, doctor, convert, running)


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except errors.BinshiftError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            ctx.exit(exit_code_of(error))


@click.group(cls=_Group, epilog=described(*EXIT_CODES))
@click.version_option(__version__, prog_name="binshift")
def cli() -> None:
    """Rescale stateful Structured Streaming queries while they run.

    CHECKPOINT is the checkpoint location of a query: a path, or a URI that pyarrow knows. A query that runs is
    reached through it; one that is stopped finds what was left for it when it starts.
    """


for family in _FAMILIES:
    for command in family.COMMANDS:
        cli.add_command(command)


def main() -> None:
    """The entry point of the program `binshift`."""
    sys.exit(cli())
