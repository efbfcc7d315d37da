"""Reports the results of Spark's suites on two providers, for a terminal and as a page of the documentation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devtools.suites.explained import EXPLAINED
from devtools.suites.results import Outcome

__all__ = ["HEAD", "Comparison", "page", "section", "sections"]

#: Stands for the tests that a suite didn't get to.
NOT_RUN = "(tests that did not run)"


@dataclass(frozen=True)
class Comparison:
    """A suite on binshift's provider, and on Spark's own as far as it did not pass there.

    Attributes
    ----------
    stock : Outcome, optional
        The outcome of the tests that failed on binshift's provider, or of all tests if the suite didn't end
        there.
    """

    ours: Outcome
    stock: Outcome | None = None

    @property
    def suite(self) -> str:
        """The name of the suite."""
        return self.ours.suite

    @property
    def failed_on_both(self) -> set[str]:
        """The tests that fail on both providers."""
        return set(self.ours.failed) & set(self.stock.failed) if self.stock else set()

    @property
    def differs(self) -> dict[str, str | None]:
        """The tests that passed on only one provider, and the known reasons."""
        tests = set(self.ours.failed) ^ set(self.stock.failed if self.stock else ())
        if self.stock and not self.ours.ended and self.ours.tests < self.stock.tests:
            tests.add(NOT_RUN)
        return {test: self._reason(test) for test in sorted(tests)}

    @property
    def unexplained(self) -> int:
        """How many differences have no reason. A suite that ended on only one provider counts as one."""
        unended = self.stock is not None and self.stock.ended != self.ours.ended and self._reason("") is None
        return unended + sum(reason is None for reason in self.differs.values())

    def passes_here(self, test: str) -> bool:
        """True if a test that differs passes on binshift's provider."""
        return test not in self.ours.failed and test != NOT_RUN

    def _reason(self, test: str) -> str | None:
        """The reason in the first entry that matches the suite and the test."""
        return next((r for suite, part, r in EXPLAINED if suite in self.suite and part in test), None)

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Tests, those that pass, that pass when run again, that fail on both, that differ."""
        ours = self.ours
        return (
            ours.tests,
            ours.passed,
            len(ours.unsteady),
            len(self.failed_on_both),
            len(self.differs),
        )

    @property
    def line(self) -> str:
        """A row below `HEAD`."""
        ends = "" if self.ours.ended else "  did not end"
        return f"{self.suite:80}" + "".join(f"{n:9}" for n in self.counts) + ends


HEAD = f"{'suite':80}{'tests':>9}{'pass':>9}{'unsteady':>9}{'both fail':>9}{'differ':>9}"

INTRODUCTION = """\
# Spark's own suites

Spark has test suites of its own for streams and their state. If they pass on binshift's provider, queries
behave on it as on Spark's. This page says, for each release of Spark, how many tests passed, and explains each
difference to Spark's own RocksDB provider.

To run the suites of a release, use `make spark-suites RELEASE=4.1.1`. It begins with the suites that ask most
of a provider, and writes the section of the release below. If you stop it, it continues from there the next
time, because `python/devtools/suites/results.jsonl` has a line for each suite that has run.

The sessions of the suites get the provider by a system property. If a suite names Spark's RocksDB provider
itself, the name is replaced in the compiled classes. A test that doesn't pass on binshift's provider is run on
Spark's as well. A test is called unsteady if it failed once, and passed when it was run again.
"""

_HEADING = "## Spark "
COLUMNS = "| tests | passed | unsteady | failed on both | differ |"


def page(parts: Mapping[str, str]) -> str:
    """The page, with a section for each release."""
    return "\n".join([INTRODUCTION, *(parts[spark] for spark in sorted(parts, reverse=True))])


def sections(text: str) -> dict[str, str]:
    """The sections of a page, by release."""
    parts = re.split(f"^(?={_HEADING})", text, flags=re.M)[1:]
    return {part.split()[2]: part.rstrip() + "\n" for part in parts}


def section(compared: Sequence[Comparison], spark: str, left: Sequence[str]) -> str:
    """The section of a release: a row for each suite, and the reasons of differences.

    Parameters
    ----------
    compared : sequence
        The suites that ran, in the order of their names.
    left : sequence of str
        The suites that have not run yet.
    """
    totals = [sum(column) for column in zip(*(c.counts for c in compared), strict=True)]
    lines = [
        f"{_HEADING}{spark}",
        "",
        f"It has {len(compared) + len(left)} suites for streams and their state; {len(compared)} have run.",
        "",
        f"| suites {COLUMNS}",
        "|---|---|---|---|---|---|",
        f"| {len(compared)} | {_cells(totals)} |",
        "",
        "### What differs",
        "",
        *_differences(compared),
        "",
        *_named("Unsteady tests", {c.suite: c.ours.unsteady for c in compared}),
        *_named("Tests that fail on both", {c.suite: sorted(c.failed_on_both) for c in compared}),
        "### Suites that have run",
        "",
        "Names are below `org.apache.spark.sql`.",
        "",
        f"| suite {COLUMNS}",
        "|---|---|---|---|---|---|",
        *(f"| `{c.suite}` | {_cells(c.counts)} |" for c in compared),
        *_left(left),
    ]
    return "\n".join(lines) + "\n"


def _cells(counts: Sequence[int]) -> str:
    return " | ".join(f"{n:,}" for n in counts)


def _differences(compared: Sequence[Comparison]) -> list[str]:
    """A row for each reason in each suite, with its tests."""
    out = ["| suite | tests | passes on | reason |", "|---|---|---|---|"]
    for c in compared:
        reasons = Counter(
            ("binshift's only" if c.passes_here(test) else "Spark's only", reason or f"not explained: {test}")
            for test, reason in c.differs.items()
        )
        out += [f"| `{c.suite}` | {n} | {where} | {reason} |" for (where, reason), n in reasons.items()]
        if not c.ours.ended and not c.differs:
            out.append(f"| `{c.suite}` | | it ends on neither | |")
    return out if len(out) > 2 else ["Nothing."]


def _named(title: str, tests: Mapping[str, Sequence[str]]) -> list[str]:
    rows = [
        f"| `{suite}` | {test.replace('|', '&#124;')} |" for suite, names in tests.items() for test in names
    ]
    return [f"### {title}", "", "| suite | test |", "|---|---|", *rows, ""] if rows else []


def _left(left: Sequence[str]) -> list[str]:
    return ["", "### Suites that have not run", "", *(f"- `{suite}`" for suite in left)] if left else []
