"""`binshift doctor`, which says what stands in the way of a rescale."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from binshift.cli.output import checkpoint, example
from binshift.control.checks import Verdict
from binshift.control.doctor import examine
from binshift.control.files import Files
from binshift.errors import ConfigurationError

__all__ = ["COMMANDS"]


@click.command(
    epilog=example(
        "binshift doctor s3://bucket/checkpoint",
        errors=(ConfigurationError,),
        note="1 also if there is a problem. Advice changes no exit code.",
    )
)
@checkpoint
@click.option(
    "--wait",
    type=float,
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the query's answer; 0 doesn't ask.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per check.")
@click.pass_context
def doctor(ctx: click.Context, checkpoint: str, *, wait: float, as_json: bool) -> None:
    """Try file system, checkpoint and settings of a query.

    Writes, lists and deletes a small file in CHECKPOINT, which may be a place that no query has used yet;
    nothing stays there. Asks the query, if it runs, for its settings. Says what to change.
    """
    has_problem = False
    for check in examine(Files(checkpoint), wait):
        has_problem |= check.verdict is Verdict.PROBLEM
        if as_json:
            click.echo(json.dumps(asdict(check)))
            continue
        click.echo(f"{check.verdict:8} {check.about}: {check.found}")
        if check.then:
            click.echo(f"{'':9}{check.then}")
    if has_problem:
        ctx.exit(1)


COMMANDS = (doctor,)
