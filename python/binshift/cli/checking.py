"""What the commands that read checkpoints share: their form, their errors, their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from binshift import errors

__all__ = ["DAMAGED", "EXIT_CODES", "ReadingCommand", "example", "print_table"]

#: Exit code of what cannot be read because it is damaged.
DAMAGED = 9
_CODES: dict[type[errors.BinshiftError], int] = {errors.ConfigurationError: 3, errors.StateFormatError: DAMAGED}
EXIT_CODES = (
    "Exit codes: 0 done, 1 failure, 2 wrong argument, 3 ConfigurationError, 9 StateFormatError (damage)."
)


class ReadingCommand(click.Command):
    """A command whose errors are messages and exit codes, also when it is run by itself."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except errors.BinshiftError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            ctx.exit(next((code for kind, code in _CODES.items() if isinstance(error, kind)), 1))


def example(*lines: str) -> str:
    r"""An example and the exit codes, for the end of a help; \b keeps click from filling the lines."""
    return "\n\n".join(["\b\nExample:\n" + "\n".join(f"  {line}" for line in lines), EXIT_CODES])


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns of equal width."""
    lines = [[str(c) for c in head], *([("" if c is None else str(c)) for c in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        click.echo("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip())
