"""Invariants of each state. Those of a load are in `epoch`, and those of a refusal in `start`."""

from __future__ import annotations

from functools import lru_cache

from model.epoch import may_commit
from model.recovery import REMEMBERED, expected, named, owners, recovered, retained
from model.rules import Guard, Rules
from model.savepoints import savepoints_whole
from model.state import Checkpoint, Claim, State


def violated(rules: Rules, s: State) -> str | None:
    return (
        entry_in_force(rules, s)
        or claims_in_order(s.files)
        or promise_kept(rules, s.files)
        or recoverable(rules, s.files)
        or savepoints_whole(s.files)
    )


@lru_cache(REMEMBERED)
def recoverable(rules: Rules, c: Checkpoint) -> str | None:
    """Each retained version can be rebuilt from files alone, with each epoch in it once.

    Files that were deleted by hand are the stores' to make up for, until it is found that they have.
    """
    if c.is_harmed:
        return None
    for version in retained(c):
        tables = owners(rules, c, named(rules, c, version - 1), version - 1)
        for bin in range(rules.bins):
            rows = recovered(rules, c, tables, bin, version)
            if rows is None:
                return f"bin {bin} at version {version} cannot be recovered"
            if rows != expected(c, version):
                return (
                    f"bin {bin} at version {version} is recovered as {rows}, and not as {expected(c, version)}"
                )
    return None


def entry_in_force(rules: Rules, s: State) -> str | None:
    """A driver whose epoch may be committed runs it under the entry that the logs name."""
    if rules.real_time or not rules.has(Guard.CHAIN):
        return None
    for d in s.drivers:
        if d.phase == "run" and may_commit(rules, s.files, d):
            there = named(rules, s.files, d.epoch)
            if there != d.entry:
                return f"run {d.run} runs epoch {d.epoch} under {d.entry}, and the logs name {there}"
    return None


def promise_kept(rules: Rules, c: Checkpoint) -> str | None:
    """A migration that is to be undone has led back to where it began, once no plan is there any more."""
    if c.promised is None or c.plans:
        return None
    there = named(rules, c, len(c.offsets) - 1)
    if there is not None and there.table != c.promised:
        return f"no plan is left, and the table is {there.table}, not {c.promised}, to which a rollback leads"
    return None


def claims_in_order(c: Checkpoint) -> str | None:
    """The newest claim is of the run that goes on: none that is behind claims after it."""
    for older, newer in zip(c.claims, c.claims[1:], strict=False):
        if older.epoch > newer.epoch and _is_logged(c, older) and _is_logged(c, newer):
            return (
                f"run {newer.run} claims epoch {newer.epoch} after run {older.run} claimed epoch {older.epoch}"
            )
    return None


def _is_logged(c: Checkpoint, claim: Claim) -> bool:
    return claim.epoch < len(c.offsets) and c.offsets[claim.epoch].record == claim.record
