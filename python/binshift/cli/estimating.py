"""What a command says about the cost of a plan: `binshift plan --estimate`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from binshift.cli.output import combined, print_json, print_table
from binshift.planning.estimate import Estimate, Executors, estimates
from binshift.planning.plan import MigrationPlan

__all__ = ["estimate_options", "print_estimates"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}


def _amount_in(unit: str) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """Reads a number with a unit, such as `5TB` or `10Gbit`."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        found = re.fullmatch(rf"(\d+\.?\d*) ?([kmgtp]?){unit}", value, re.IGNORECASE)
        if found is None or not float(found[1]):
            raise click.BadParameter(f"{value!r} is no amount; write it like 10G{unit}", context, parameter)
        return float(found[1]) * _UNITS[found[2].lower()]

    return read


#: The options that an estimate needs; they come as a dict to `print_estimates`.
estimate_options = combined(
    click.option(
        "--estimate",
        is_flag=True,
        help="Say what the plan would cost, and a drain, and the loss of an executor. Needs --state and "
        "--executors. Without a checkpoint, the plan is one that moves half of the state.",
    ),
    click.option(
        "--state",
        callback=_amount_in("B"),
        metavar="SIZE",
        help="How large all rows are before compression, such as 5TB.",
    ),
    click.option("--executors", type=click.IntRange(min=1), help="How many executors have it."),
    click.option(
        "--network",
        callback=_amount_in("bit"),
        default="10Gbit",
        show_default=True,
        metavar="RATE",
        help="What an executor can send and receive in a second.",
    ),
    click.option(
        "--epoch",
        "epoch_s",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="How long an epoch takes.",
    ),
)


def print_estimates(plan: MigrationPlan | None, options: dict[str, Any], *, as_json: bool) -> None:
    """Prints a row for each thing that may happen; as JSON, a line of bytes and seconds.

    Parameters
    ----------
    plan : MigrationPlan, optional
        The plan whose cost is wanted; by default, one that moves half of the state in two steps.
    options : dict
        Values of `estimate_options`.
    as_json : bool
        Whether programs read it.
    """
    if options["state"] is None or options["executors"] is None:
        raise click.UsageError("--estimate needs --state, such as 5TB, and --executors")
    where = Executors(
        state=options["state"],
        n=options["executors"],
        network=options["network"] / 8,
        epoch_s=options["epoch_s"],
    )
    part, steps = (len(plan.moves) / plan.source.bins, len(plan.steps)) if plan else (0.5, 2)
    made = estimates(where, part, max(1, steps))
    if as_json:
        for each in made:
            print_json(asdict(each))
    else:
        head = ["", "moves", "takes, if cores are free", "if all are busy", "adds to an epoch"]
        print_table(head, [_row(each) for each in made], is_text=True)


def _row(of: Estimate) -> list[str]:
    return [of.what, _size(of.moved), *map(_time, (of.free_s, of.busy_s, of.adds_s))]


def _size(n: float) -> str:
    unit = max((u for u, least in _UNITS.items() if least <= max(n, 1)), key=_UNITS.__getitem__)
    return f"{n / _UNITS[unit]:.3g} {unit.upper().replace('K', 'k')}B"


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.1f} h"
