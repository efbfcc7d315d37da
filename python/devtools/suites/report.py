"""What Spark's suites say of two providers, as lines for a terminal and as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from devtools.suites.explained import EXPLAINED
from devtools.suites.running import Outcome

__all__ = ["Comparison", "page"]


@dataclass(frozen=True)
class Comparison:
    """A suite on Spark's own provider and on binshift's."""

    suite: str
    stock: Outcome
    ours: Outcome

    @property
    def tests(self) -> int:
        """How many there are on Spark's provider."""
        return len(self.stock.tests)

    def both(self, *, passed: bool) -> int:
        """How many tests passed, or failed, on both providers."""
        return sum(1 for t, p in self.stock.tests.items() if p is passed and self.ours.tests.get(t) is p)

    @property
    def differs(self) -> dict[str, str | None]:
        """The tests that passed on one provider only, and the reasons that are known."""
        either = sorted({*self.stock.tests, *self.ours.tests})
        return {t: self._reason(t) for t in either if self.stock.tests.get(t) is not self.ours.tests.get(t)}

    @property
    def unexplained(self) -> int:
        """How many differences have no reason; a suite that did not end is one."""
        unended = self.stock.ended != self.ours.ended and self._reason("") is None
        return unended + sum(reason is None for reason in self.differs.values())

    def _reason(self, test: str) -> str | None:
        """That of the first entry whose suite and part of a name fit."""
        return next((r for suite, part, r in EXPLAINED if suite in self.suite and part in test), None)

    @property
    def line(self) -> str:
        """A row below `HEAD`."""
        ends = "" if self.stock.ended and self.ours.ended else "  did not end"
        counts = (self.tests, self.both(passed=True), self.both(passed=False), len(self.differs))
        return f"{self.suite:80}" + "".join(f"{n:11}" for n in counts) + ends


INTRODUCTION = """\
# Spark's own suites

On binshift's provider, the suites of Spark {spark} for streams and their state do what they do on Spark's own
RocksDB provider, but for what is explained below. `scripts/spark_suites.py --all` runs them and writes this
page.

Sessions of the suites get the provider by a system property. Where a suite names Spark's RocksDB provider
itself, the name is replaced in its compiled classes. Tests that fail on both providers need files of Spark's
source tree, or settings of its build.
"""

HEAD = f"{'suite':80}{'tests':>11}{'both pass':>11}{'both fail':>11}{'differ':>11}"


def page(compared: Mapping[str, Comparison], spark: str, left: int) -> str:
    """A page with a row for each suite and the reasons of what differs.

    Parameters
    ----------
    compared : mapping
        The suites that ran on both providers, by name.
    left : int
        How many suites have not run yet.
    """
    rows = [c for _, c in sorted(compared.items())]
    total = [
        sum(x)
        for x in zip(
            *((c.tests, c.both(passed=True), c.both(passed=False), len(c.differs)) for c in rows), strict=True
        )
    ]
    lines = [
        INTRODUCTION.format(spark=spark),
        "| suites | tests | passed on both | failed on both | differ |",
        "|---|---|---|---|---|",
        f"| {len(rows)} | {' | '.join(f'{n:,}' for n in total)} |",
        "",
        *([f"{left} suites of the release have not been run.", ""] if left else []),
        "## What differs",
        "",
        *_differences(rows),
        "",
        "## All suites",
        "",
        "Names are below `org.apache.spark.sql`.",
        "",
        "| suite | tests | passed on both | failed on both | differ |",
        "|---|---|---|---|---|",
        *(
            f"| `{c.suite}` | {c.tests} | {c.both(passed=True)} | {c.both(passed=False)} | {len(c.differs)} |"
            for c in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def _differences(rows: list[Comparison]) -> list[str]:
    """A row for each reason in each suite, with the tests that it is of."""
    out = ["| suite | tests | passes on | reason |", "|---|---|---|---|"]
    for c in rows:
        reasons: dict[tuple[str, str], int] = {}
        for test, reason in c.differs.items():
            where = "Spark's only" if c.stock.tests.get(test) else "binshift's only"
            key = (where, reason or f"not explained: {test}")
            reasons[key] = reasons.get(key, 0) + 1
        out += [f"| `{c.suite}` | {n} | {where} | {reason} |" for (where, reason), n in reasons.items()]
    return out if len(out) > 2 else ["Nothing."]
