"""Makes a life that comes out wrong as short as it can be, so that a person can see why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from lives.life import Life


def shrunk(life: Life, is_wrong: Callable[[Life], bool], seconds: float) -> Life:
    """A life with fewer events and settings that comes out wrong as well, as far as there is time to try.

    It leaves out half of the events, then smaller parts, as long as what is left is still wrong.
    """
    deadline = time.monotonic() + seconds
    size = max(1, len(life.events) // 2)
    while size:
        for smaller in _without(life, size):
            if time.monotonic() > deadline:
                return life
            if is_wrong(smaller):
                life, size = smaller, min(size, max(1, len(smaller.events) // 2))
                break
        else:
            size //= 2
    return life


def _without(life: Life, size: int) -> Iterator[Life]:
    for begin in range(0, len(life.events), size):
        yield replace(life, events=life.events[:begin] + life.events[begin + size :])
    if size == 1:
        for name in life.settings:
            yield replace(life, settings=tuple(s for s in life.settings if s != name))
        if life.rows > 20:
            yield replace(life, rows=20)
