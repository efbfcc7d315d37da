"""The results of suites, kept in the repository: a line for each suite and provider."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "Results"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a suite's tests on a provider.

    Attributes
    ----------
    suite : str
        Its name below `PACKAGE`.
    spark : str
        The release of the suite and of Spark's jars.
    provider : str
        A title of the provider: stock or binshift.
    version : str
        Version of the provider.
    ended : bool
        Whether the suite ran to its end. If not, some of its tests are missing.
    passed : int
        How many tests passed.
    failed : tuple of str
        The tests that failed whenever they ran.
    unsteady : tuple of str
        The tests that failed, and passed when their suite ran once more.
    skipped : tuple of str
        The tests that are ignored or cancelled.
    repeated : bool
        Whether the tests that failed only on this provider have run once more.
    """

    suite: str
    spark: str
    provider: str
    version: str
    ended: bool
    passed: int
    failed: tuple[str, ...] = ()
    unsteady: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    repeated: bool = False

    @property
    def tests(self) -> int:
        """How many tests ran."""
        return self.passed + len(self.failed) + len(self.unsteady)

    @property
    def clean(self) -> bool:
        """True if all tests passed, so that no other run is needed to judge it."""
        return self.ended and not self.failed and not self.unsteady and self.passed > 0


@dataclass(frozen=True)
class Results:
    """The file of all outcomes, in the order of suites; written as a whole at each change."""

    file: Path

    def of(self, suite: str, spark: str, provider: str) -> Outcome | None:
        """The outcome of the suite on that provider, if it has run there."""
        return self._read().get((spark, suite, provider))

    def put(self, outcome: Outcome) -> None:
        """Keeps an outcome, replacing an earlier one."""
        self._write(self._read() | {(outcome.spark, outcome.suite, outcome.provider): outcome})

    def forget(self, suites: Iterable[str], spark: str) -> None:
        """Forgets suites, so that they run again."""
        gone = set(suites)
        self._write({k: o for k, o in self._read().items() if o.spark != spark or o.suite not in gone})

    def _write(self, outcomes: Mapping[tuple[str, str, str], Outcome]) -> None:
        lines = (json.dumps(_filled(outcomes[key])) + "\n" for key in sorted(outcomes))
        staging = self.file.with_suffix(".part")
        staging.write_text("".join(lines))
        os.replace(staging, self.file)

    def _read(self) -> dict[tuple[str, str, str], Outcome]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        outcomes = (Outcome(**{k: _frozen(v) for k, v in json.loads(line).items()}) for line in lines)
        return {(o.spark, o.suite, o.provider): o for o in outcomes}


def _filled(outcome: Outcome) -> dict[str, object]:
    """Its fields, without empty lists and default values."""
    return {k: v for k, v in asdict(outcome).items() if v != () and (k != "repeated" or v)}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
