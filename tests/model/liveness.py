"""Each migration ends: wherever things stand, what is left of the protocol can end it without any mishap.

Looks at all states of a size, and goes back from those in which no migration is under way.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque

from model.explorer import Outcome, canonical, initial, steps, trace
from model.mishaps import MISHAPS
from model.recovery import named
from model.rollback import steps_taken
from model.rules import Rules
from model.state import State

EPOCHS_TO_END = 3
"""One plans the step, the next one takes it, and the one after that finds the migration ended."""
EPOCHS_TO_HEAL = 2
"""If files of stores were deleted: one epoch asks for snapshots, which are uploaded while the next one runs."""


def must_end(rules: Rules, s: State) -> bool:
    """True if a migration is under way that there are epochs and starts enough to end."""
    c = s.files
    if not c.plans or not s.left.starts:
        return False
    there = named(rules, c, len(c.offsets) - 1)
    taken = {p: steps_taken(c, there, p.migration) for p in c.plans}
    # One that is to be undone takes the same steps once more, in a rollback.
    left = sum(taken[p] if p.stopped_after is not None else len(p.tables) - taken[p] for p in c.plans)
    plans = len(c.plans) + sum(p.stopped_after is not None for p in c.plans)
    to_heal = EPOCHS_TO_HEAL if c.is_harmed else 0
    return rules.epochs - len(c.commits) >= left + EPOCHS_TO_END * plans + to_heal


def migrations_end(rules: Rules, limit: int = 1_000_000) -> Outcome:
    begun = time.process_time()
    first = initial(rules)
    parents: dict[int, int | None] = {hash(first): None}
    before: dict[int, list[int]] = defaultdict(list)
    ended: list[int] = []
    waiting: list[int] = []
    queue = deque([(first, hash(first), 0)])
    transitions = depth = 0
    while queue and len(parents) < limit:
        s, number, depth = queue.popleft()
        if not s.files.plans:
            ended.append(number)
        elif must_end(rules, s):
            waiting.append(number)
        for step in steps(rules, s):
            transitions += 1
            after = canonical(rules, step.state)
            found = hash(after)
            if step.event[0] not in {*MISHAPS, "cancel"}:
                before[found].append(number)
            if found not in parents:
                parents[found] = number
                queue.append((after, found, depth + 1))
    endable = set(ended)
    back = deque(ended)
    while back:
        for number in before[back.popleft()]:
            if number not in endable:
                endable.add(number)
                back.append(number)
    stuck = next((n for n in waiting if n not in endable), None)
    return Outcome(
        len(parents),
        transitions,
        depth,
        time.process_time() - begun,
        not queue,
        None if stuck is None else "a migration cannot end any more",
        () if stuck is None else trace(rules, parents, stuck),
    )
