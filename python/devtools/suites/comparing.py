"""Runs suites on binshift's provider, and on Spark's where that helps to judge a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from devtools.suites.report import Comparison
from devtools.suites.results import Outcome, Results
from devtools.suites.running import Provider, Runner

__all__ = ["Comparing", "steadied"]


@dataclass(frozen=True)
class Comparing:
    """Runs suites on binshift's provider, and on Spark's where that helps, and keeps the results."""

    runner: Runner
    results: Results
    ours: Provider
    stock: Provider

    def known(self, suite: str) -> Comparison | None:
        """The comparison for a suite, if all runs that it needs are done."""
        ours, stock = (self.results.of(suite, self.runner.spark, p.title) for p in (self.ours, self.stock))
        if ours is None or (stock is None and not ours.clean):
            return None
        return Comparison(ours, None if ours.clean else stock)

    def run(self, suites: Sequence[str]) -> None:
        """Runs suites on binshift's provider. Tests that fail there run on Spark's, and then once more."""
        spark = self.runner.spark
        fresh = [s for s in suites if self.results.of(s, spark, self.ours.title) is None]
        self._each(dict.fromkeys(fresh, ()), self.ours)
        unknown = [self.results.of(s, spark, self.ours.title) for s in suites if not self.known(s)]
        # If a suite didn't end, it isn't known which of its tests are missing.
        self._each({o.suite: o.failed if o.ended else () for o in unknown if o}, self.stock)
        # A failure that a busy machine caused doesn't occur a second time.
        for compared in filter(None, map(self.known, suites)):
            once = sorted(set(compared.ours.failed) - compared.failed_on_both)
            if once and not compared.ours.repeated:
                for again in self.runner.run({compared.suite: once}, self.ours):
                    self.results.put(steadied(compared.ours, again))

    def _each(self, suites: Mapping[str, Sequence[str]], provider: Provider) -> None:
        """Runs suites, or tests of them. If a suite ends its JVM, the suites after it run in another one."""
        left = dict(suites)
        while left:
            for outcome in self.runner.run(left, provider):
                self.results.put(outcome)
                del left[outcome.suite]


def steadied(first: Outcome, again: Outcome) -> Outcome:
    """The outcome of a suite after some of its tests have run again: those that passed then are unsteady."""
    unsteady = set(first.failed) - set(again.failed) if again.ended and again.passed else set()
    return replace(
        first,
        repeated=True,
        failed=tuple(t for t in first.failed if t not in unsteady),
        unsteady=tuple(sorted(unsteady)),
    )
