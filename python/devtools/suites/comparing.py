"""Runs suites on the providers that have something to tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from devtools.suites.report import Comparison
from devtools.suites.results import Outcome, Results
from devtools.suites.running import Provider, Runner

__all__ = ["Comparing", "steadied"]


@dataclass(frozen=True)
class Comparing:
    """Runs suites on the providers that have something to tell of them, and keeps what became of them."""

    runner: Runner
    results: Results
    ours: Provider
    stock: Provider

    def known(self, suite: str) -> Comparison | None:
        """What is to be said of a suite, if all runs that it takes are done."""
        ours, stock = (self.results.of(suite, self.runner.spark, p.title) for p in (self.ours, self.stock))
        if ours is None or (stock is None and not ours.clean):
            return None
        return Comparison(ours, None if ours.clean else stock)

    def run(self, suites: Sequence[str]) -> None:
        """Runs suites on binshift's provider; tests that fail there on Spark's, and then once more."""
        spark = self.runner.spark
        fresh = [s for s in suites if self.results.of(s, spark, self.ours.title) is None]
        self._each(dict.fromkeys(fresh, ()), self.ours)
        unknown = [self.results.of(s, spark, self.ours.title) for s in suites if not self.known(s)]
        # Of a suite that did not end it is not known which of its tests are missing.
        self._each({o.suite: o.failed if o.ended else () for o in unknown if o}, self.stock)
        # A failure of a busy machine is not there the second time.
        for compared in filter(None, map(self.known, suites)):
            once = sorted(set(compared.ours.failed) - compared.failed_on_both)
            if once and not compared.ours.repeated:
                for again in self.runner.run({compared.suite: once}, self.ours):
                    self.results.put(steadied(compared.ours, again))

    def _each(self, suites: Mapping[str, Sequence[str]], provider: Provider) -> None:
        """Runs suites, or tests of them, in another JVM those behind one that ended its JVM."""
        left = dict(suites)
        while left:
            for outcome in self.runner.run(left, provider):
                self.results.put(outcome)
                del left[outcome.suite]


def steadied(first: Outcome, again: Outcome) -> Outcome:
    """What a suite says when some of its tests have run again: those that passed then are unsteady."""
    unsteady = set(first.failed) - set(again.failed) if again.ended and again.passed else set()
    return replace(
        first,
        repeated=True,
        failed=tuple(t for t in first.failed if t not in unsteady),
        unsteady=tuple(sorted(unsteady)),
    )
