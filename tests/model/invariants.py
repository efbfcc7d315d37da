"""What holds in each state."""

from __future__ import annotations

from model.epoch import may_commit
from model.recovery import expected, named, owners, recovered, retained
from model.rules import Guard, Rules
from model.state import State


def violated(rules: Rules, s: State) -> str | None:
    return entry_in_force(rules, s) or recoverable(rules, s)


def recoverable(rules: Rules, s: State) -> str | None:
    """Each retained version can be rebuilt from files alone, with each epoch in it once."""
    for version in retained(rules, s):
        if version == 0:
            continue
        name = named(rules, s, version - 1)
        tables = owners(rules, s, name, version - 1)
        if tables is None:
            return f"version {version}: the chain from {name} is broken"
        for bin in range(rules.bins):
            rows = recovered(rules, s, tables, bin, version)
            if rows is None:
                return f"bin {bin} at version {version} cannot be recovered"
            if rows != expected(s, version):
                return f"bin {bin} at version {version} is recovered as {rows}, and not as {expected(s, version)}"
    return None


def entry_in_force(rules: Rules, s: State) -> str | None:
    """A driver whose epoch may be committed runs it under the entry that the logs name."""
    for d in s.drivers:
        if d.phase == "run" and may_commit(s, d) and rules.has(Guard.CHAIN):
            there = named(rules, s, d.epoch)
            if there != d.entry:
                return f"run {d.run} runs epoch {d.epoch} under {d.entry}, and the logs name {there}"
    return None
