"""Random walks through large sizes: they reach ends of lives that a breadth-first search doesn't get to."""

from __future__ import annotations

import random
import time

from model.explorer import Outcome, initial, steps
from model.invariants import violated
from model.mishaps import MISHAPS
from model.rules import Rules

RARE = {*MISHAPS, "start"}
"""Taken less often than the rest, or no walk would get far."""


def walk(rules: Rules, seconds: float, seed: int) -> Outcome:
    """Walks from the first state to one in which nothing can happen any more, again and again."""
    choose = random.Random(seed)
    begun = time.monotonic()
    seen: set[int] = set()
    taken = longest = 0
    while time.monotonic() - begun < seconds:
        s, events = initial(rules), []
        while found := list(steps(rules, s)):
            step = choose.choices(found, [1 if x.event[0] in RARE else 10 for x in found])[0]
            taken += 1
            events.append(step.event)
            s = step.state
            fault = step.fault
            if hash(s) not in seen:
                seen.add(hash(s))
                fault = fault or violated(rules, s)
            if fault:
                return Outcome(
                    len(seen), taken, len(events), time.monotonic() - begun, False, fault, tuple(events)
                )
        longest = max(longest, len(events))
    return Outcome(len(seen), taken, longest, time.monotonic() - begun, False, None, ())
