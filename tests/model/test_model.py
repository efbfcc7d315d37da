"""Small sizes of the protocol's model have no violation, and with each guard switched off there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.controls import BEFORE, CONTROLS, ENDLESS, Control
from model.explorer import explore
from model.liveness import migrations_end
from model.rules import Guard
from model.sizes import LIVE, SMALL


@pytest.mark.parametrize("name", SMALL)
def test_all_states_of_a_small_size_are_right(name: str) -> None:
    outcome = explore(SMALL[name])
    assert outcome.fault is None, str(outcome)
    assert outcome.is_exhausted


@pytest.mark.parametrize("control", CONTROLS, ids=lambda c: c.name)
def test_without_a_guard_there_is_a_violation(control: Control) -> None:
    assert explore(control.rules).fault is not None


@pytest.mark.parametrize("name", BEFORE)
def test_the_protocol_as_it_was_before_has_its_faults(name: str) -> None:
    assert explore(BEFORE[name].rules).fault is not None


@pytest.mark.parametrize("name", LIVE)
def test_each_migration_ends(name: str) -> None:
    outcome = migrations_end(LIVE[name])
    assert outcome.fault is None, str(outcome)
    assert outcome.is_exhausted


@pytest.mark.parametrize("control", ENDLESS, ids=lambda c: c.name)
def test_without_a_guard_some_migration_never_ends(control: Control) -> None:
    assert migrations_end(control.rules).fault is not None


def test_the_page_says_what_each_guard_is_for() -> None:
    page = (Path(__file__).parents[2] / "docs" / "model.md").read_text(encoding="utf-8")
    assert [g.name for g in Guard if f"| `{g.name}` | {g.value} |" not in page] == []


def test_each_guard_has_a_control_of_its_own() -> None:
    alone = [next(iter(c.off)) for c in [*CONTROLS, *ENDLESS] if len(c.off) == 1]
    assert set(alone) == set(Guard)
