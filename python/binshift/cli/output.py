"""Options and output that commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from binshift.cli.exits import described
from binshift.display import text_table
from binshift.errors import BinshiftError
from binshift.planning.plan import MigrationPlan

__all__ = [
    "F",
    "as_json",
    "checkpoint",
    "combined",
    "example",
    "print_json",
    "print_plan",
    "print_table",
    "summary_of",
]

F = TypeVar("F", bound=Callable[..., Any])

checkpoint = click.argument("checkpoint")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def combined(*them: Callable[[F], F]) -> Callable[[F], F]:
    """Combines several options into one decorator, in the order of the help."""

    def decorated(command: F) -> F:
        for option in reversed(them):
            command = option(command)
        return command

    return decorated


def example(*lines: str, errors: Iterable[type[BinshiftError]], note: str = "") -> str:
    r"""The end of a command's help: an example, and exit codes; \b keeps click from filling the lines.

    Parameters
    ----------
    lines : str
        The lines of the example.
    errors : iterable of type
        The errors with which the command can fail.
    note : str
        Text that follows the exit codes.
    """
    shown = "\n".join(f"  {line}" for line in lines)
    return f"\b\nExample:\n{shown}\n\n{described(*errors)} {note}".rstrip()


def print_json(value: Any) -> None:
    """Prints a value as one line of JSON, with times in ISO form."""
    click.echo(json.dumps(value, default=_encoded))


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, is_text: bool = False) -> None:
    """Prints columns of equal width; see `text_table`."""
    click.echo(text_table(head, rows, is_text=is_text))


def print_plan(plan: MigrationPlan, *, as_json: bool) -> None:
    """Prints what a plan will do; as JSON, prints the whole plan."""
    click.echo(plan.to_json() if as_json else str(plan))


def summary_of(plan: MigrationPlan) -> dict[str, Any]:
    """The facts of a plan without its moves."""
    return {
        "strategy": plan.strategy,
        "from_partitions": plan.source.partitions,
        "to_partitions": plan.target.partitions,
        "steps": len(plan.steps),
        "bins_to_move": len(plan.moves),
        "bytes_to_move": plan.bytes_to_move,
    }


def _encoded(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no JSON form")
