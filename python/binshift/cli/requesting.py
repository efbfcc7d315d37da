"""Commands that a running query carries out: rescale, rebalance, drain, cancel."""

from __future__ import annotations

from typing import Any, get_args

import click

from binshift.checkpoint import Checkpoint, open_checkpoint
from binshift.cli.following import Follower, send
from binshift.cli.output import as_json, checkpoint, combined, example, print_json, print_plan
from binshift.cli.planning import measured, plan_of, strategy_options
from binshift.errors import MigrationError
from binshift.load import By
from binshift.mailbox import Mailbox
from binshift.options import MigrationOptions
from binshift.placement import Placement
from binshift.plan import MigrationPlan
from binshift.targets import balanced

__all__ = ["COMMANDS"]

#: The options of all commands that start a migration.
_migrating = combined(
    as_json,
    strategy_options,
    click.option("--no-prepare", is_flag=True, help="Do not copy bins before their step takes effect."),
    click.option("--dry-run", is_flag=True, help="Print the plan, and do nothing."),
    click.option("--wait", type=float, metavar="SECONDS", help="Follow the migration, so long at most."),
)


@click.command(
    epilog=example(
        "binshift rescale /data/checkpoint 8 --wait 300",
        "binshift rescale /data/checkpoint 8 --dry-run --json",
        "binshift rescale /data/checkpoint 8 --max-bytes-per-step 64000000",
    )
)
@checkpoint
@click.argument("partitions", type=int)
@click.option("--place-on", multiple=True, metavar="EXECUTOR", help="Executor for new partitions; repeatable.")
@_migrating
def rescale(checkpoint: str, partitions: int, place_on: tuple[str, ...], **options: Any) -> None:
    """The query goes to PARTITIONS state partitions; with even bins and few moves."""
    found = open_checkpoint(checkpoint)
    table = found.routing()
    _start(found, plan_of(found, table, table.balanced(partitions), options), options, place_on=place_on)


@click.command(
    epilog=example(
        "binshift rebalance /data/checkpoint --by bytes --wait 300",
        "binshift rebalance /data/checkpoint --max-moves 10 --dry-run",
    )
)
@checkpoint
@click.option(
    "--by",
    type=click.Choice(get_args(By)),
    default="rows",
    show_default=True,
    help="What the load of a bin is.",
)
@click.option("--max-moves", type=int, help="No more bins than this move.")
@_migrating
def rebalance(checkpoint: str, by: By, max_moves: int | None, **options: Any) -> None:
    """Spreads the load evenly over all partitions, and these over all executors. Asks the running query."""
    found = open_checkpoint(checkpoint)
    placement = _placement(found, options)
    stats = None if by == "bins" else measured(found, options)
    table = found.routing()
    target = balanced(table, stats, by, placement.partitions_with_idle(table.bins), max_moves)
    click.echo(str(target), err=True)
    plan = plan_of(found, table, target.table, options, stats)
    _start(found, plan, options, place_on=placement.idle)


@click.command(epilog=example("binshift drain /data/checkpoint 3 --wait 600"))
@checkpoint
@click.argument("executor")
@_migrating
def drain(checkpoint: str, executor: str, **options: Any) -> None:
    """Empties EXECUTOR before it is removed. Asks the running query where its partitions are."""
    found = open_checkpoint(checkpoint)
    leaving = _placement(found, options).leaving(executor)
    table = found.routing()
    _start(found, plan_of(found, table, table.without(leaving), options), options, vacate=executor)


@click.command(epilog=example("binshift cancel /data/checkpoint --wait 60"))
@checkpoint
@click.option("--wait", type=float, metavar="SECONDS", help="Wait so long for the query's answer.")
@as_json
def cancel(checkpoint: str, wait: float | None, as_json: bool) -> None:
    """The migration under way takes no further step; a table that is consistent stays."""
    found = open_checkpoint(checkpoint)
    migration = found.migration()
    if migration is None:
        raise MigrationError(f"{checkpoint} has no migration under way; there is nothing to cancel")
    mailbox = Mailbox(found)
    request = mailbox.cancel(migration.id)
    if wait is not None:
        mailbox.answer(request, wait)
    if as_json:
        print_json({"request": request, "migration": migration.id, "cancelled": wait is not None})
    else:
        done = "is cancelled" if wait is not None else f"will be cancelled by request {request}"
        click.echo(f"migration {migration.id} {done}")


COMMANDS = (rescale, rebalance, drain, cancel)


def _start(found: Checkpoint, plan: MigrationPlan, options: dict[str, Any], **more: Any) -> None:
    if options["dry_run"]:
        print_plan(plan, options["as_json"])
        return
    if not options["as_json"]:
        click.echo(str(plan), err=True)
    how = MigrationOptions(prepare=not options["no_prepare"], **more)
    send(Follower(found, plan), options["as_json"], options["wait"], how)


def _placement(found: Checkpoint, options: dict[str, Any]) -> Placement:
    return Placement.of(Mailbox(found).ask("placement", options["answer_timeout"]))
