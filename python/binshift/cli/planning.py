"""Makes plans for commands: cuts moves into steps, and asks the query for the numbers that this needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import click
import pyarrow as pa

from binshift.cli.output import combined
from binshift.control.directory import ControlDir
from binshift.control.mailbox import Mailbox
from binshift.errors import PlanError
from binshift.planning.bounded import Bounded
from binshift.planning.limits import Deadline, Guard, OnTimeout
from binshift.planning.load import bin_bytes
from binshift.planning.options import MigrationOptions
from binshift.planning.placement import Placement
from binshift.planning.plan import MigrationPlan
from binshift.planning.routing import RoutingTable
from binshift.planning.strategies import default_strategy, parse_strategy

__all__ = [
    "answer_timeout",
    "application_of",
    "is_cut",
    "limits",
    "measured",
    "migration_options",
    "options_of",
    "placement_of",
    "plan_of",
    "strategy_options",
]

_COLUMNS = ("bin", "bytes", "reads", "writes")

#: The option of all commands that ask the running query.
answer_timeout = click.option(
    "--answer-timeout",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for answers of the running query.",
)

#: The options of all commands that cut a plan into steps; they come as a dict to `plan_of`.
strategy_options = combined(
    click.option("--strategy", help="all-at-once, fluid, batched:BINS, optimized:BINS or on-demand."),
    click.option("--gap", type=int, default=0, help="Epochs that stay idle between two steps."),
    click.option(
        "--max-bytes-per-step",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Cut steps that would move more bytes of state than this. Asks the running query.",
    ),
    click.option(
        "--pause-budget",
        "pause_budget_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Cut steps whose bins would take longer than this to adopt, at 50 MB/s and one after the other. "
        "Asks the running query.",
    ),
    answer_timeout,
)

#: The options of all commands that submit a plan; they come as a dict to `options_of`.
migration_options = combined(
    click.option("--start-epoch", type=int, metavar="EPOCH", help="No step takes effect before this epoch."),
    click.option(
        "--place-on",
        multiple=True,
        metavar="EXECUTOR",
        help="An executor that may get partitions; repeatable. Asks the running query.",
    ),
    click.option(
        "--prepare/--no-prepare",
        default=True,
        show_default=True,
        help="Copy bins before their step takes effect.",
    ),
    click.option(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="Follow the migration until it is over, but no longer than this.",
    ),
    click.option(
        "--replace", is_flag=True, help="Replace a plan that still waits for the query, but no rollback."
    ),
)

#: The options that say when a migration ends before its last step; they come as a dict to `options_of`.
limits = combined(
    click.option(
        "--deadline",
        metavar="TIME",
        help="When the last step has to be taken, from the acceptance of the plan on: '600 s', '10 min', '2 h' "
        "or '30 epochs'.",
    ),
    click.option(
        "--on-timeout",
        type=click.Choice(get_args(OnTimeout)),
        default="finish",
        show_default=True,
        help="What happens then: the migration goes on, takes no further step, or is undone.",
    ),
    click.option(
        "--guard-longest-epoch",
        type=float,
        metavar="SECONDS",
        help="Take no step after an epoch that is longer, and undo the migration after three of them.",
    ),
)


def options_of(
    options: dict[str, Any],
    *,
    place_on: tuple[str, ...] = (),
    vacate: str | None = None,
    places: Mapping[int, str] | None = None,
    application: str | None = None,
) -> MigrationOptions:
    """How a plan should be carried out.

    Parameters
    ----------
    options : dict
        Values of `migration_options`, and of `limits` if the command has them.
    place_on : tuple of str
        Executors for new partitions if the options name none.
    vacate : str, optional
        An executor that should run no partition when the plan is done.
    places : mapping, optional
        The new executor of each partition that should move.
    application : str, optional
        The application of these executors, if that is known.

    Raises
    ------
    PlanError
        If the start epoch, the deadline or the guard is impossible.
    """
    longest = options.get("guard_longest_epoch")
    receivers = options["place_on"] or place_on
    names_executors = bool(receivers or vacate or places)
    return MigrationOptions(
        options["start_epoch"],
        options["prepare"],
        receivers,
        vacate,
        places or {},
        application if names_executors else None,
        Deadline.of(options.get("deadline")),
        options.get("on_timeout", "finish"),
        None if longest is None else Guard(longest),
    )


def is_bounded(options: dict[str, Any]) -> bool:
    """True if the cost of steps is bounded."""
    return options["max_bytes_per_step"] is not None or options["pause_budget_s"] is not None


def is_cut(options: dict[str, Any]) -> bool:
    """True if the options say how to cut a plan into steps."""
    return options["strategy"] is not None or options["gap"] != 0 or is_bounded(options)


def plan_of(
    found: ControlDir,
    table: RoutingTable,
    target: RoutingTable,
    options: dict[str, Any],
    stats: pa.Table | None = None,
) -> MigrationPlan:
    """The plan from the table in force to another one.

    Parameters
    ----------
    found : ControlDir
        The directory of the query that is asked for the cost of steps.
    table, target : RoutingTable
    options : dict
        Values of `strategy_options`.
    stats : pyarrow.Table, optional
        The result of `measured`, if that was asked already.

    Raises
    ------
    PlanError
        If the strategy is impossible, or is bounded and the query does not count bytes.
    MigrationTimeout
        If the strategy is bounded and the query does not answer.
    """
    name, gap = options["strategy"], options["gap"]
    strategy = parse_strategy(name, gap=gap) if name else default_strategy(table, gap=gap)
    if stats is None and is_bounded(options):
        stats = measured(found, options)
    sizes = None if stats is None else bin_bytes(stats, table.bins)
    if is_bounded(options):
        if sizes is None:
            raise PlanError(
                "the query does not know the bytes of its bins, since "
                "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows is off; leave "
                "--max-bytes-per-step and --pause-budget out, or restart it with that setting on",
                condition="BYTES_UNKNOWN",
            )
        strategy = Bounded(
            strategy,
            max_bytes_per_step=options["max_bytes_per_step"],
            pause_budget_s=options["pause_budget_s"],
            bin_bytes=sizes,
        )
    plan = strategy.plan(table, target)
    return plan if sizes is None else plan.with_bytes(sizes)


def placement_of(found: ControlDir, options: dict[str, Any]) -> Placement:
    """Asks the running query where its partitions are, and on which executors they may be.

    Raises
    ------
    PlanError
        If one of the executors that the options name is not alive.
    MigrationTimeout
        If the query does not answer within the `answer_timeout` of the options.
    """
    placement = Placement.of(Mailbox(found).ask("placement", options["answer_timeout"]))
    placement.require_live(options["place_on"])
    return placement


def application_of(found: ControlDir, options: dict[str, Any]) -> str | None:
    """The application of the executors that the options name. Asks nobody if they name none.

    Raises
    ------
    PlanError, MigrationTimeout
        See `placement_of`.
    """
    return placement_of(found, options).application if options["place_on"] else None


def measured(found: ControlDir, options: dict[str, Any]) -> pa.Table:
    """The statistics of the running query's bins, as far as plans need them.

    Raises
    ------
    MigrationTimeout
        If the query does not answer within the `answer_timeout` of the options.
    """
    columns = Mailbox(found).ask("stats", options["answer_timeout"])["columns"]
    bins = columns["bin"]
    # Unknown values are null, or left out altogether.
    return pa.table({name: pa.array(columns.get(name) or [None] * len(bins), pa.int64()) for name in _COLUMNS})
