"""The command group `binshift`. A family of commands is a module with COMMANDS, plugged in below."""

from __future__ import annotations

import errno
import importlib
import signal
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import click
import pyarrow as pa

from binshift import __version__, errors
from binshift.cli import convert, doctor, reading, requesting, running, status
from binshift.cli.exits import EXIT_CODES, described, exit_code_of
from binshift.control.failures import storage_error

__all__ = ["cli", "main"]

_FAMILIES = (status, reading, requesting, doctor, convert, running)
#: Modules that need an extra, with their commands.
_OPTIONAL = {"state": ("state",), "fsck": ("fsck",), "savepoint": ("savepoint", "fork")}


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except errors.BinshiftError as error:
            _fail(ctx, error)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                # Nobody reads the output any more, so click ends the program.
                raise
            # Errors about files of a checkpoint name the place already.
            place = error.filename if isinstance(error, OSError) else None
            _fail(
                ctx,
                storage_error("use", str(place), error)
                if place
                else storage_error("write", "the output", error),
            )


def _fail(ctx: click.Context, error: errors.BinshiftError) -> NoReturn:
    click.echo(f"{type(error).__name__}: {error}", err=True)
    click.echo(f"  see {error.url}", err=True)
    ctx.exit(exit_code_of(error))


@click.group(cls=_Group, epilog=described(*EXIT_CODES))
@click.version_option(__version__, prog_name="binshift")
def cli() -> None:
    """Rescale stateful Structured Streaming queries while they run.

    CHECKPOINT is the checkpoint location of a query: a path, or a URI that pyarrow knows. A query that runs is
    reached through it; one that is stopped finds what was left for it when it starts.
    """


def main() -> None:
    """Runs the program; `binshift.cli.main` is its entry point."""
    # So that a request to end, like ^C, makes the program take back a question that it has left for a query.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    cli()


def _optional(name: str) -> Iterable[click.Command]:
    """The commands of a module, or commands of the same names that say which library they need."""
    try:
        commands: Iterable[click.Command] = importlib.import_module(f"binshift.cli.{name}").COMMANDS
        return commands
    except errors.ConfigurationError as missing:
        error = missing

    def fail(arguments: tuple[str, ...]) -> None:
        raise error

    rest = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True, "help_option_names": []}
    return [click.Command(n, settings, fail, [rest], help=f"Not here: {error}") for n in _OPTIONAL[name]]


for family in _FAMILIES:
    for command in family.COMMANDS:
        cli.add_command(command)
for name in _OPTIONAL:
    for command in _optional(name):
        cli.add_command(command)
