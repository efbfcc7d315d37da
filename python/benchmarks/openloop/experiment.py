"""An experiment: the runs that it needs, and the figures that result from them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openloop.results import Record

__all__ = ["Case", "Experiment", "Figure", "compared", "paired", "spread", "spread_if_any"]


@dataclass(frozen=True, slots=True)
class Case:
    """A run to do: its name in the results, and how to do it.

    `do` gets the runner's services and the number of the repetition, and returns the measured values.
    """

    name: Mapping[str, Any]
    do: Callable[..., Record]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the report: the median of the repetitions, their spread, and how many there are."""

    what: str
    value: float
    low: float
    high: float
    unit: str = ""
    count: int = 1

    @property
    def median(self) -> str:
        """Without the spread."""
        return f"{_short(self.value)}{self.unit}"

    def __str__(self) -> str:
        if self.count == 1:
            return self.median
        return f"{_short(self.value)}{self.unit} ({_short(self.low)} to {_short(self.high)}; {self.count} runs)"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A row of the report.

    Parameters
    ----------
    id, title : str
        As in the report.
    claims : mapping
        Expected figures, by the source of the expectation.
    cases : sequence of Case
        The runs, which are done one after the other, and all of them again for each repetition.
    figures : callable
        Computes the figures from the records of this experiment.
    headline : str
        The overview shows figures whose names begin like this; only the first figure if empty.
    runs_of : str
        The id of the experiment whose runs it uses, if it has none of its own.
    """

    id: str
    title: str
    claims: Mapping[str, str]
    cases: Sequence[Case]
    figures: Callable[[Sequence[Record]], list[Figure]]
    group: str = ""
    repeats: int = field(default=5)
    headline: str = ""
    runs_of: str = ""

    def summary(self, figures: Sequence[Figure]) -> list[Figure]:
        """The figures that the overview shows."""
        if not self.headline:
            return list(figures[:1])
        return [f for f in figures if f.what.startswith(self.headline)]


def spread(what: str, values: Sequence[float], unit: str = "") -> Figure:
    """The figure for some repetitions."""
    return Figure(what, statistics.median(values), min(values), max(values), unit, len(values))


def spread_if_any(what: str, values: Sequence[float]) -> list[Figure]:
    """The figure for some repetitions; none if there are none."""
    return [spread(what, values)] if values else []


def paired(
    records: Sequence[Record],
    value: Callable[[Mapping[str, Any]], float],
    over: dict[str, Any],
    under: dict[str, Any],
) -> list[float]:
    """A value of one case ÷ that of another, of the same repetition."""
    tops = {r.repeat: value(r.values) for r in records if _is(r, over)}
    bottoms = {r.repeat: value(r.values) for r in records if _is(r, under)}
    return [tops[n] / bottoms[n] for n in sorted(tops.keys() & bottoms.keys()) if bottoms[n]]


def compared(
    what: str,
    records: Sequence[Record],
    value: Callable[[Mapping[str, Any]], float],
    over: dict[str, Any],
    under: dict[str, Any],
) -> list[Figure]:
    """The figure for a value of one case ÷ that of another; none if no repetition has both."""
    return spread_if_any(what, paired(records, value, over, under))


def _is(record: Record, case: Mapping[str, Any]) -> bool:
    return all(record.case.get(k) == v for k, v in case.items())


def _short(x: float) -> str:
    return f"{x:.0f}" if abs(x) >= 100 or x == int(x) else f"{x:.2g}" if abs(x) < 0.1 else f"{x:.2f}"
