"""Breadth first through all states, which are kept as hashes; so the first violation has a shortest trace."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from model.epoch import goes_on, sweeps
from model.executors import cleanups, uploads
from model.invariants import violated
from model.migration import migrates
from model.mishaps import mishaps
from model.rules import Rules
from model.savepoints import savepoints
from model.start import begins, starts
from model.state import Checkpoint, PerBin, State
from model.steps import Event, Step


def initial(rules: Rules) -> State:
    if rules.since is not None:
        return rules.since._replace(left=rules.budget)
    files = Checkpoint((), (), (), frozenset(), frozenset(), frozenset(), (), 0, 0)
    return State(files, frozenset(), frozenset(), (), 0, 0, rules.budget)


def steps(rules: Rules, s: State) -> Iterator[Step]:
    """All that can happen next."""
    for d in s.drivers:
        yield from begins(rules, s, d)
        yield from goes_on(rules, s, d)
        yield from migrates(rules, s, d)
    yield from starts(rules, s)
    yield from uploads(rules, s)
    yield from cleanups(rules, s)
    yield from sweeps(s)
    yield from savepoints(rules, s)
    yield from mishaps(rules, s)


def canonical(rules: Rules, s: State) -> State:
    """One state for all that differ only in how bins are numbered."""
    if not rules.symmetries:
        return s
    return min((s, *(_permuted(s, p) for p in rules.symmetries)), key=hash)


def _permuted(value: Any, order: tuple[int, ...]) -> Any:
    if isinstance(value, PerBin):
        return PerBin(value[i] for i in order)
    if isinstance(value, frozenset):
        return frozenset(_permuted(v, order) for v in value)
    if isinstance(value, tuple):
        items = (_permuted(v, order) for v in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


@dataclass(frozen=True)
class Outcome:
    states: int
    transitions: int
    depth: int
    seconds: float
    is_exhausted: bool
    fault: str | None
    trace: tuple[Event, ...]

    def __str__(self) -> str:
        end = "exhausted" if self.is_exhausted else "not exhausted"
        counts = f"{self.states:,} states, {self.transitions:,} steps, depth {self.depth}"
        line = f"{counts}, {self.seconds:.0f} s of CPU, {end}"
        if self.fault is None:
            return line
        return "\n".join(
            [line, f"VIOLATION: {self.fault}", *("  " + " ".join(map(str, e)) for e in self.trace)]
        )


def explore(rules: Rules, limit: int = 100_000_000, progress: bool = False) -> Outcome:
    begun = time.process_time()
    first = initial(rules)
    parents: dict[int, int | None] = {hash(first): None}
    queue = deque([(first, hash(first), 0)])
    transitions = depth = 0
    fault: str | None = None
    events: tuple[Event, ...] = ()
    while queue:
        s, number, depth = queue.popleft()
        for step in steps(rules, s):
            transitions += 1
            after = canonical(rules, step.state)
            found = hash(after)
            is_new = found not in parents
            if is_new:
                parents[found] = number
                queue.append((after, found, depth + 1))
                if progress and len(parents) % 100_000 == 0:
                    print(f"{len(parents):,} states, {len(queue):,} waiting, depth {depth}", flush=True)
            fault = step.fault or (violated(rules, after) if is_new else None)
            if fault:
                events = (*trace(rules, parents, number), step.event)
                break
        if fault or len(parents) >= limit:
            break
    return Outcome(
        len(parents),
        transitions,
        depth,
        time.process_time() - begun,
        not queue and fault is None,
        fault,
        events,
    )


def trace(rules: Rules, parents: dict[int, int | None], end: int) -> tuple[Event, ...]:
    """Runs along the hashes from the first state again."""
    path = [end]
    while (before := parents[path[-1]]) is not None:
        path.append(before)
    s = initial(rules)
    events = []
    for wanted in reversed(path[:-1]):
        step = next(x for x in steps(rules, s) if hash(canonical(rules, x.state)) == wanted)
        events.append(step.event)
        s = canonical(rules, step.state)
    return tuple(events)
