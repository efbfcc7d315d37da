"""Commands that read a checkpoint's files: plan, history. The query may run or not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from binshift.cli.estimating import estimate_options, print_estimates
from binshift.cli.following import Follower, send
from binshift.cli.output import as_json, checkpoint, example, print_json, print_plan, print_table
from binshift.cli.planning import (
    application_of,
    is_cut,
    limits,
    migration_options,
    options_of,
    plan_of,
    strategy_options,
)
from binshift.control.directory import open_directory
from binshift.control.history import history_table
from binshift.errors import (
    ConfigurationError,
    MigrationError,
    MigrationTimeout,
    PlanError,
    UnsupportedOperatorError,
)
from binshift.planning.options import MigrationOptions
from binshift.planning.plan import MigrationPlan
from binshift.planning.routing import RoutingTable
from binshift.planning.targets import table_of

__all__ = ["COMMANDS"]


@click.command(
    epilog=example(
        "binshift plan /data/checkpoint --partitions 8 --strategy optimized:4",
        "binshift plan /data/checkpoint --partitions 8 --output plan.json",
        "binshift plan /data/checkpoint --from plan.json --submit",
        "binshift plan --estimate --state 5TB --executors 200 --network 10Gbit",
        errors=(ConfigurationError, PlanError, MigrationError, MigrationTimeout, UnsupportedOperatorError),
    )
)
@click.argument("checkpoint", required=False)
@as_json
@click.option("--partitions", type=int, help="The new number of state partitions.")
@click.option("--assignment", type=click.File(), help="JSON file with the owner of each bin, '-' for stdin.")
@click.option("--from", "source", type=click.File(), help="A plan that --output or --json wrote.")
@strategy_options
@click.option("--output", type=click.Path(dir_okay=False, writable=True), help="File to write the plan to.")
@click.option(
    "--submit",
    "is_submitted",
    is_flag=True,
    help="Submit the plan. It may wait for a query that is stopped, unless it names executors.",
)
@estimate_options
@migration_options
@limits
def plan(
    checkpoint: str | None,
    as_json: bool,
    partitions: int | None,
    assignment: Any,
    source: Any,
    output: str | None,
    is_submitted: bool,
    **options: Any,
) -> None:
    """Make a plan; nothing happens without --submit.

    How it is carried out, such as --start-epoch, is no part of a plan, and is said with --submit.
    """
    how = options_of(options)
    is_carried_out = how != MigrationOptions() or options["wait"] is not None or options["replace"]
    if is_carried_out and not is_submitted:
        raise click.UsageError(
            "--start-epoch, --place-on, --no-prepare, --deadline, --on-timeout, --guard-longest-epoch, --wait "
            "and --replace need --submit"
        )
    if checkpoint is None:
        if not options["estimate"]:
            raise click.UsageError("name the checkpoint, or ask for an --estimate without one")
        print_estimates(None, options, as_json=as_json)
        return
    found = open_directory(checkpoint)
    how = options_of(options, application=application_of(found, options))
    if source is None:
        table = found.routing()
        made = plan_of(found, table, _target(table, partitions, assignment), options)
    elif partitions is not None or assignment is not None or is_cut(options):
        raise click.UsageError(
            "the plan of --from is taken as it is; leave --partitions, --assignment, --strategy, --gap and "
            "bounds out, or make another plan with them"
        )
    else:
        made = _read(source)
    if output:
        _write(made, output)
    if not is_submitted:
        if options["estimate"]:
            print_estimates(made, options, as_json=as_json)
        else:
            print_plan(made, as_json=as_json)
        return
    if not as_json:
        click.echo(str(made), err=True)
    send(Follower(found, made, how), as_json=as_json, wait=options["wait"], replace=options["replace"])


@click.command(
    epilog=example(
        "binshift history /data/checkpoint",
        "binshift history /data/checkpoint --json",
        errors=(ConfigurationError,),
    )
)
@checkpoint
@as_json
def history(checkpoint: str, as_json: bool) -> None:
    """List the steps that took effect.

    Oldest first, as far back as the routing log goes.
    """
    rows = history_table(s for s in open_directory(checkpoint).steps() if s["committed"]).to_pylist()
    if as_json:
        print_json(rows)
    elif rows:
        head = list(rows[0])
        print_table(
            head, [[r[h].isoformat(" ", "seconds") if h == "written_at" else r[h] for h in head] for r in rows]
        )
    else:
        click.echo("no step of a migration took effect", err=sys.stderr.isatty())


COMMANDS = (plan, history)


def _read(file: Any) -> MigrationPlan:
    try:
        return MigrationPlan.from_json(file.read())
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{file.name} is no text", param_hint="--from") from error


def _write(plan: MigrationPlan, output: str) -> None:
    try:
        Path(output).write_text(plan.to_json() + "\n")
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--output") from error


def _target(table: RoutingTable, partitions: int | None, assignment: Any) -> RoutingTable:
    if assignment is not None:
        target = table_of(_owners(assignment), table)
        return target if partitions is None else RoutingTable(partitions, target.assignment)
    if partitions is not None:
        return table_of(partitions, table)
    raise click.UsageError("there is no target; give --partitions, --assignment or --from")


def _owners(file: Any) -> list[Any]:
    """The list of owners in a JSON file. The owners may still be impossible."""
    try:
        owners = json.load(file)
    except ValueError as error:
        raise _no_owners(file.name, str(error)) from error
    if not isinstance(owners, list):
        raise _no_owners(file.name, "it is something else")
    return owners


def _no_owners(name: str, reason: str) -> PlanError:
    return PlanError(
        f"{name} is not a JSON list of owners ({reason}); give one for each bin",
        condition="INVALID_VALUE",
        name="assignment",
        value=name,
    )
