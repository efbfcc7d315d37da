"""Commands that a running query carries out: rescale, rebalance, drain, cancel, rollback."""

from __future__ import annotations

from typing import Any, get_args

import click

from binshift.cli.following import Follower, followed_back, require_none_waiting, send
from binshift.cli.output import as_json, checkpoint, combined, example, print_json, print_plan
from binshift.cli.planning import (
    answer_timeout,
    application_of,
    limits,
    measured,
    migration_options,
    options_of,
    placement_of,
    plan_of,
    strategy_options,
)
from binshift.control.directory import ControlDir, open_directory
from binshift.control.mailbox import Mailbox
from binshift.errors import (
    ConfigurationError,
    MigrationError,
    MigrationTimeout,
    PlanError,
    UnsupportedOperatorError,
)
from binshift.planning.limits import undone_by
from binshift.planning.load import By
from binshift.planning.plan import MigrationPlan
from binshift.planning.strategies import AllAtOnce
from binshift.planning.targets import balanced

__all__ = ["COMMANDS"]

#: The errors of a command that starts a migration.
_FAILS = (ConfigurationError, PlanError, MigrationError, MigrationTimeout, UnsupportedOperatorError)

_dry_run = click.option("--dry-run", is_flag=True, help="Print the plan, and do nothing.")

#: The options of all commands that move bins.
_migrating = combined(as_json, strategy_options, migration_options, limits, _dry_run)


@click.command(
    epilog=example(
        "binshift rescale /data/checkpoint 8 --wait 300",
        "binshift rescale /data/checkpoint 8 --dry-run --json",
        "binshift rescale /data/checkpoint 8 --max-bytes-per-step 64000000",
        'binshift rescale /data/checkpoint 8 --deadline "10 min" --on-timeout rollback',
        errors=_FAILS,
    )
)
@checkpoint
@click.argument("partitions", type=int)
@_migrating
def rescale(checkpoint: str, partitions: int, **options: Any) -> None:
    """Rescale the query to PARTITIONS state partitions.

    Bins are spread evenly, with few moves.
    """
    found = open_directory(checkpoint)
    application = application_of(found, options)
    table = found.routing()
    plan = plan_of(found, table, table.balanced(partitions), options)
    _start(found, plan, options, application=application)


@click.command(
    epilog=example(
        "binshift rebalance /data/checkpoint --by bytes --wait 300",
        "binshift rebalance /data/checkpoint --max-moves 10 --dry-run",
        errors=_FAILS,
    )
)
@checkpoint
@click.option(
    "--by",
    type=click.Choice(get_args(By)),
    default="rows",
    show_default=True,
    help="How the load of a bin is measured.",
)
@click.option(
    "--grow",
    is_flag=True,
    help="Add new partitions for executors that run none, instead of moving partitions there.",
)
@click.option("--max-moves", type=int, help="The most bins that may move.")
@_migrating
def rebalance(checkpoint: str, by: By, grow: bool, max_moves: int | None, **options: Any) -> None:
    """Spread the load evenly over all partitions.

    Partitions are spread over all executors, too: whole ones move, also to executors that have joined. Asks
    the running query.
    """
    found = open_directory(checkpoint)
    placement = placement_of(found, options).rejoined
    application = placement.application
    stats = None if by == "bins" else measured(found, options)
    table = found.routing()
    n = placement.partitions_with_idle(table.bins) if grow else table.partitions
    target = balanced(table, stats, by, partitions=n, max_moves=max_moves)
    click.echo(str(target), err=True)
    plan = plan_of(found, table, target.table, options, stats)
    if n > table.partitions:
        _start(found, plan, options, place_on=placement.idle, application=application)
    else:
        places = placement.spread(target.after, options["place_on"])
        _start(found, plan, options, places=places, application=application)


@click.command(epilog=example("binshift drain /data/checkpoint 3 --wait 600", errors=_FAILS))
@checkpoint
@click.argument("executor")
@combined(as_json, migration_options, answer_timeout, _dry_run)
def drain(checkpoint: str, executor: str, **options: Any) -> None:
    """Empty EXECUTOR before it is removed.

    Its partitions move to other executors as a whole. Asks the running query where they are.
    """
    found = open_directory(checkpoint)
    placement = placement_of(found, options)
    places = placement.drained(executor, options["place_on"])
    table = found.routing()
    plan = AllAtOnce().plan(table, table)
    _start(found, plan, options, vacate=executor, places=places, application=placement.application)


@click.command(
    epilog=example(
        "binshift cancel /data/checkpoint --wait 60",
        errors=(ConfigurationError, MigrationError, MigrationTimeout),
    )
)
@checkpoint
@click.option("--wait", type=float, metavar="SECONDS", help="How long to wait for the query's answer.")
@as_json
def cancel(checkpoint: str, wait: float | None, as_json: bool) -> None:
    """End the migration under way, or withdraw one that waits.

    No further step is taken, and a table that is consistent stays. A plan that the query has not taken yet is
    withdrawn at once, whether the query runs or not.
    """
    found = open_directory(checkpoint)
    mailbox = Mailbox(found)
    # The order matters: if the query takes a plan in between, it is under way by then.
    withdrawn = [w for w in mailbox.waiting() if w.is_plan and mailbox.take_back(w.id)]
    migration = found.migration()
    if migration is None and not withdrawn:
        raise MigrationError(
            f"{found.uri} has no migration under way, and none waits; there is nothing to cancel",
            condition="NO_MIGRATION",
            checkpoint=found.uri,
        )
    if not as_json:
        for w in withdrawn:
            click.echo(f"request {w} is withdrawn")
    request = None
    if migration is not None:
        request = mailbox.cancel(migration.id)
        if wait is not None:
            mailbox.answer(request, wait)
    if as_json:
        print_json(
            {
                "request": request,
                "migration_id": None if migration is None else migration.id,
                "cancelled": migration is not None and wait is not None,
                "withdrawn": [w.id for w in withdrawn],
            }
        )
    elif migration is not None:
        done = "is cancelled" if wait is not None else f"will be cancelled by request {request}"
        click.echo(f"migration {migration.id} {done}")


@click.command(
    epilog=example(
        "binshift rollback /data/checkpoint --wait 300",
        "binshift rollback /data/checkpoint --migration 09b4ee3d-3694-429f-8e07-2898f7d675fb",
        errors=(ConfigurationError, MigrationError, MigrationTimeout),
    )
)
@checkpoint
@click.option(
    "--migration", metavar="ID", help="Another one than the newest; 'binshift history' shows their ids."
)
@click.option(
    "--wait",
    type=float,
    metavar="SECONDS",
    help="Follow the rollback until it is over, but no longer than this.",
)
@as_json
def rollback(checkpoint: str, migration: str | None, wait: float | None, as_json: bool) -> None:
    """Undo a migration: the one under way, or else the newest.

    One that is under way takes no further step. Then the steps that were taken are undone, the last one first.
    """
    found = open_directory(checkpoint)
    mailbox = Mailbox(found)
    require_none_waiting(mailbox)
    # The query might serve a request twice after a crash, so the request names the migration.
    chosen = migration or found.newest_migration()
    if chosen is None:
        raise MigrationError(
            f"{found.uri} has no migration under way, and no step has taken effect; there is nothing to undo",
            condition="NO_MIGRATION",
            checkpoint=found.uri,
        )
    # A migration that undoes another one is not undone by itself.
    chosen = chosen if migration else undone_by(chosen) or chosen
    request = mailbox.rollback(chosen)
    facts: dict[str, Any] = {"request": request, "migration_id": chosen}
    text = f"request {request} takes effect soon if the query runs, and otherwise when it is started"
    if wait is not None:
        followed_back(found, request, chosen, wait)
        text = f"migration {chosen} is rolled back"
    if as_json:
        print_json(facts)
    else:
        click.echo(text)


COMMANDS = (rescale, rebalance, drain, cancel, rollback)


def _start(found: ControlDir, plan: MigrationPlan, options: dict[str, Any], **more: Any) -> None:
    for partition, executor in sorted(more.get("places", {}).items()):
        click.echo(f"partition {partition} moves to executor {executor}", err=True)
    if options["dry_run"]:
        print_plan(plan, as_json=options["as_json"])
        return
    if not options["as_json"]:
        click.echo(str(plan), err=True)
    follower = Follower(found, plan, options_of(options, **more))
    send(follower, as_json=options["as_json"], wait=options["wait"], replace=options["replace"])
