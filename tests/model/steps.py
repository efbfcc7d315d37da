"""A step of the protocol: an event, and the state after it."""

from __future__ import annotations

from typing import Any, NamedTuple

from model.state import Checkpoint, Driver, State

Event = tuple[Any, ...]


class Step(NamedTuple):
    event: Event
    state: State
    fault: str | None = None


def replaced(s: State, old: Driver, new: Driver, files: Checkpoint | None = None) -> State:
    return s._replace(drivers=tuple(new if d is old else d for d in s.drivers), files=files or s.files)


def without(s: State, driver: Driver) -> State:
    return s._replace(drivers=tuple(d for d in s.drivers if d is not driver))
