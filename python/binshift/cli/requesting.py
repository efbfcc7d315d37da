"""Commands that a running query carries out: rescale, rebalance, drain, cancel."""

from __future__ import annotations

from typing import Any, get_args

import click
import pyarrow as pa

from binshift.checkpoint import Checkpoint, open_checkpoint
from binshift.cli.following import Follower, send
from binshift.cli.output import as_json, checkpoint, combined, example, print_json, print_plan
from binshift.errors import MigrationError
from binshift.load import By, bin_bytes
from binshift.mailbox import Mailbox
from binshift.options import MigrationOptions
from binshift.placement import Placement
from binshift.plan import MigrationPlan
from binshift.routing import RoutingTable
from binshift.strategies import default_strategy, parse_strategy
from binshift.targets import balanced

__all__ = ["COMMANDS"]

_LOADS = ("bytes", "reads", "writes")

_answer_timeout = click.option(
    "--answer-timeout",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for what only the running query knows.",
)


#: The options of all commands that start a migration.
_migrating = combined(
    as_json,
    click.option("--strategy", help="all-at-once, fluid, batched:BINS, optimized:BINS or on-demand."),
    click.option("--gap", type=int, default=0, help="Epochs that stay idle between two steps."),
    click.option("--no-prepare", is_flag=True, help="Do not copy bins before their step takes effect."),
    click.option("--dry-run", is_flag=True, help="Print the plan, and do nothing."),
    click.option("--wait", type=float, metavar="SECONDS", help="Follow the migration, so long at most."),
)


@click.command(
    epilog=example(
        "binshift rescale /data/checkpoint 8 --wait 300", "binshift rescale /data/checkpoint 8 --dry-run --json"
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
    _start(found, _cut(table, table.balanced(partitions), options), options, place_on=place_on)


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
@_answer_timeout
@_migrating
def rebalance(checkpoint: str, by: By, max_moves: int | None, answer_timeout: float, **options: Any) -> None:
    """Spreads the load evenly over all partitions, and these over all executors. Asks the running query."""
    found = open_checkpoint(checkpoint)
    placement = _placement(found, answer_timeout)
    stats = None if by == "bins" else _stats(found, answer_timeout)
    table = found.routing()
    target = balanced(table, stats, by, placement.partitions_with_idle(table.bins), max_moves)
    click.echo(str(target), err=True)
    sizes = None if stats is None else bin_bytes(stats, table.bins)
    plan = _cut(table, target.table, options)
    _start(found, plan if sizes is None else plan.with_bytes(sizes), options, place_on=placement.idle)


@click.command(epilog=example("binshift drain /data/checkpoint 3 --wait 600"))
@checkpoint
@click.argument("executor")
@_answer_timeout
@_migrating
def drain(checkpoint: str, executor: str, answer_timeout: float, **options: Any) -> None:
    """Empties EXECUTOR before it is removed. Asks the running query where its partitions are."""
    found = open_checkpoint(checkpoint)
    leaving = _placement(found, answer_timeout).leaving(executor)
    table = found.routing()
    _start(found, _cut(table, table.without(leaving), options), options, vacate=executor)


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


def _cut(table: RoutingTable, target: RoutingTable, options: dict[str, Any]) -> MigrationPlan:
    name = options["strategy"]
    return (parse_strategy(name, options["gap"]) if name else default_strategy(table)).plan(table, target)


def _start(found: Checkpoint, plan: MigrationPlan, options: dict[str, Any], **more: Any) -> None:
    if options["dry_run"]:
        print_plan(plan, options["as_json"])
        return
    if not options["as_json"]:
        click.echo(str(plan), err=True)
    how = MigrationOptions(prepare=not options["no_prepare"], **more)
    send(Follower(found, plan), options["as_json"], options["wait"], how)


def _placement(found: Checkpoint, timeout: float) -> Placement:
    return Placement.of(Mailbox(found).ask("placement", timeout))


def _stats(found: Checkpoint, timeout: float) -> pa.Table:
    columns = Mailbox(found).ask("stats", timeout)["columns"]
    bins = columns["bin"]
    # What is not known is null, or left out altogether.
    return pa.table(
        {name: pa.array(columns.get(name) or [None] * len(bins), pa.int64()) for name in ("bin", *_LOADS)}
    )
