"""`binshift status`, which shows where a query and its migration stand."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from typing import Any

import click

from binshift.cli.output import as_json, checkpoint, example, print_json
from binshift.control.directory import ControlDir, PlannedMigration, open_directory
from binshift.control.mailbox import Mailbox, Waiting
from binshift.errors import ConfigurationError, MigrationError, MigrationTimeout
from binshift.planning.limits import undone_by
from binshift.status import because

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
    "--live",
    type=float,
    metavar="SECONDS",
    help="Also ask the running query, and wait this long for its answer.",
)
@click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Show it again at this interval, until ^C.",
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
                # Has no effect outside of a terminal.
                click.clear()
                click.echo(f"at           {datetime.now().astimezone():%H:%M:%S}")
            _show(shown, as_json=as_json)
            time.sleep(watch)


COMMANDS = (status,)


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
            f"steps done{_stopped(migration)}"
        )
    for n, request in enumerate(facts["requests"]):
        click.echo(f"{'' if n else 'not taken':12} request {request}")
    if live is not None:
        click.echo(f"live         {_told(live)}")


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
    """The running query's answer, in words."""
    progress, routing = live["progress"], live["routing"]
    table = f"{routing['partitions']} partitions since epoch {routing['epoch']}" if routing else "no table yet"
    if progress is None:
        return f"the query runs, {table}, and has no migration under way"
    waits = progress.get("waits")
    state = f"{progress['state']}{because(progress.get('undone') or progress.get('ended_because'))}"
    steps = f"{progress['steps_done']} steps done{f', the next step {waits}' if waits else ''}"
    return f"the query runs, {table}; migration {live['migration_id']}: {state}, {steps}"


def _stopped(migration: dict[str, Any]) -> str:
    """What becomes of a migration that takes no further step, and which one it undoes."""
    undoes = f", undoes {migration['undoes']}" if migration["undoes"] else ""
    if not migration["cancelled"]:
        return undoes
    end = "about to be undone" if migration["rolls_back"] else "cancelled"
    return f"{undoes}, {end}{because(migration['stopped_because'])}"


def _migration(found: ControlDir, migration: PlannedMigration | None) -> dict[str, Any] | None:
    if migration is None:
        return None
    return {
        "id": migration.id,
        "cancelled": migration.cancelled,
        "rolls_back": migration.rolls_back,
        "stopped_because": migration.stopped_because,
        "undoes": undone_by(migration.id),
        **migration.limits,
        "strategy": migration.plan.strategy,
        "from_partitions": migration.plan.source.partitions,
        "to_partitions": migration.plan.target.partitions,
        "steps": len(migration.plan.steps),
        "steps_done": found.steps_of(migration.id)[0],
        "bins_to_move": len(migration.plan.moves),
    }
