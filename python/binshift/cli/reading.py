"""Commands that read a checkpoint's files: status, plan, history. The query may run or not."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from binshift.cli.following import Follower, send
from binshift.cli.output import as_json, checkpoint, example, print_json, print_plan, print_table
from binshift.cli.planning import (
    application_of,
    is_cut,
    migration_options,
    options_of,
    plan_of,
    strategy_options,
)
from binshift.control.directory import ControlDir, PlannedMigration, open_directory
from binshift.control.history import history_table
from binshift.control.mailbox import Mailbox, Waiting
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
        "binshift status /data/checkpoint",
        "binshift status s3://bucket/checkpoint --json",
        "binshift status /data/checkpoint --watch 2",
        errors=(ConfigurationError, MigrationError, MigrationTimeout),
        note="5 and 6 with --live only.",
    )
)
@checkpoint
@as_json
@click.option(
    "--live", type=float, metavar="SECONDS", help="Ask the running query too, and wait so long for it."
)
@click.option(
    "--watch", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Show it anew, so often; ^C ends it."
)
def status(checkpoint: str, as_json: bool, live: float | None, watch: float | None) -> None:
    """Show where a query and its migration stand."""
    found = open_directory(checkpoint)
    if watch is None:
        _show(_asked(found, live), as_json=as_json)
        return
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            shown = _asked(found, live)
            if not as_json:
                # Does nothing but in a terminal.
                click.clear()
                click.echo(f"at           {datetime.now().astimezone():%H:%M:%S}")
            _show(shown, as_json=as_json)
            time.sleep(watch)


def _asked(found: ControlDir, live: float | None) -> dict[str, Any]:
    facts = _facts(found)
    if live is not None:
        facts["live"] = Mailbox(found).ask("status", live)
    return facts


def _show(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts | {"requests": [_request(w) for w in facts["requests"]]})
        return
    live = facts.get("live")
    table, migration = facts["routing"], facts["migration"]
    click.echo(f"checkpoint   {facts['checkpoint']}")
    operators = (f"{o['name']} ({o['storage']})" for o in facts["operators"])
    click.echo(f"operators    {', '.join(operators)}")
    committed, logged = _epoch(facts["committed_epoch"]), _epoch(facts["logged_epoch"])
    click.echo(f"last epoch   {committed} committed, {logged} logged")
    click.echo(
        f"routing      {facts['bins']} bins in {table['partitions']} partitions of {table['fewest_bins']} to "
        f"{table['most_bins']} bins, from epoch {table['epoch']} on"
    )
    if migration is None:
        click.echo("migration    none under way")
    else:
        click.echo(
            f"migration    {migration['id']}: {migration['from_partitions']} -> {migration['to_partitions']} "
            f"partitions, {migration['strategy']}, {migration['steps_done']} of {migration['steps']} "
            f"steps done{', cancelled' if migration['cancelled'] else ''}"
        )
    for n, request in enumerate(facts["requests"]):
        click.echo(f"{'' if n else 'not taken':12} request {request}")
    if live is not None:
        click.echo(f"live         {_told(live)}")


@click.command(
    epilog=example(
        "binshift plan /data/checkpoint --partitions 8 --strategy optimized:4",
        "binshift plan /data/checkpoint --partitions 8 --output plan.json",
        "binshift plan /data/checkpoint --from plan.json --submit",
        errors=(ConfigurationError, PlanError, MigrationError, MigrationTimeout, UnsupportedOperatorError),
    )
)
@checkpoint
@as_json
@click.option("--partitions", type=int, help="Number of state partitions to go to.")
@click.option("--assignment", type=click.File(), help="JSON file with the owner of each bin, '-' for stdin.")
@click.option("--from", "source", type=click.File(), help="A plan that --output or --json wrote.")
@strategy_options
@click.option("--output", type=click.Path(dir_okay=False, writable=True), help="File to write the plan to.")
@click.option(
    "--submit",
    "is_submitted",
    is_flag=True,
    help="Leave it for the query, also for one that is stopped if it names no executors.",
)
@migration_options
def plan(
    checkpoint: str,
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
        raise click.UsageError("--start-epoch, --place-on, --no-prepare, --wait and --replace need --submit")
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


COMMANDS = (status, plan, history)


def _facts(found: ControlDir) -> dict[str, Any]:
    layout = found.layout() or {}
    table = found.routing()
    sizes = table.sizes()
    return {
        "checkpoint": found.uri,
        "bins": layout["bins"],
        "spark_version": layout["spark_version"],
        "operators": layout["operators"],
        "committed_epoch": found.committed_epoch(),
        "logged_epoch": found.logged_epoch(),
        "routing": {
            "epoch": table.epoch,
            "partitions": table.partitions,
            "fewest_bins": min(sizes),
            "most_bins": max(sizes),
        },
        "migration": _migration(found, found.migration()),
        "requests": Mailbox(found).waiting(),
    }


def _request(waiting: Waiting) -> dict[str, Any]:
    plan = waiting.plan
    return {
        "id": waiting.id,
        "kind": waiting.kind,
        "left_at": waiting.left_at,
        "from_partitions": None if plan is None else plan.source.partitions,
        "to_partitions": None if plan is None else plan.target.partitions,
    }


def _epoch(number: int) -> str:
    return "none" if number < 0 else str(number)


def _told(live: dict[str, Any]) -> str:
    """What the running query answers, in words."""
    progress, routing = live["progress"], live["routing"]
    table = f"{routing['partitions']} partitions since epoch {routing['epoch']}" if routing else "no table yet"
    if progress is None:
        return f"the query runs, {table}, and has no migration under way"
    awaited = progress.get("bins_awaited")
    copies = f", waits for copies of {awaited} bins" if awaited else ""
    state = f"{progress['state']}, {progress['steps_done']} steps done{copies}"
    return f"the query runs, {table}; migration {live['migration_id']}: {state}"


def _migration(found: ControlDir, migration: PlannedMigration | None) -> dict[str, Any] | None:
    if migration is None:
        return None
    return {
        "id": migration.id,
        "cancelled": migration.cancelled,
        "strategy": migration.plan.strategy,
        "from_partitions": migration.plan.source.partitions,
        "to_partitions": migration.plan.target.partitions,
        "steps": len(migration.plan.steps),
        "steps_done": found.steps_of(migration.id)[0],
        "bins_to_move": len(migration.plan.moves),
    }


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
    """What a JSON file has a list of; the owners in it may still be impossible."""
    try:
        owners = json.load(file)
    except ValueError as error:
        raise _no_owners(file.name, str(error)) from error
    if not isinstance(owners, list):
        raise _no_owners(file.name, "it is something else")
    return owners


def _no_owners(name: str, reason: str) -> PlanError:
    return PlanError(
        f"{name} is no JSON list of owners ({reason}); give one for each bin",
        condition="INVALID_VALUE",
        name="assignment",
        value=name,
    )
