"""Feeds the decoders with random and damaged inputs, 10^6 in total by default, and prints a table."""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from binshift.display import text_table
from fuzz.feeding import Outcome, feed, keep
from fuzz.targets import TARGETS

KEPT = Path(__file__).parents[2] / "build/fuzz"
#: The limit of address space. A decoder that needs more has trusted a size in its input.
MOST_BYTES = 8 << 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="these targets")
    parser.add_argument(
        "--jvm", action="store_true", help="the decoders of the JVM, instead of those of Python"
    )
    arguments = parser.parse_args()
    if not arguments.jvm:  # which has bounds of its own, and reserves much more than it uses
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    jobs: list[tuple[str, int, Callable[..., Outcome]]]
    jobs = [(n, t.cost, partial(feed, n, t)) for n, t in TARGETS.items()]
    context: Any = nullcontext()
    if arguments.jvm:
        # After the package, because they need Spark.
        from fuzz import jvm
        from fuzz.running import fuzzed_jvm

        context = fuzzed_jvm()
    with context as spark:
        if arguments.jvm:
            jobs = [(n, cost, partial(jvm.feed, spark, n)) for n, cost in jvm.TARGETS.items()]
        rows, failed = run(jobs, arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fed = sum(int(row[1].replace(",", "")) for row in rows)
    sys.stdout.write(text_table(("target", "inputs", "decoded", "refused", "failed", "slowest, s"), rows))
    sys.stdout.write(f"\n{fed:,} inputs, {failed} failures, at most {peak:.0f} MB of memory\n")
    return failed > 0


def run(
    jobs: Sequence[tuple[str, int, Callable[..., Outcome]]], arguments: Any
) -> tuple[list[tuple[str, ...]], int]:
    """Feeds the requested targets; returns the rows of the table and the number of failures."""
    chosen = [job for job in jobs if not arguments.only or job[0] in arguments.only]
    shares = sum(1 / cost for _, cost, _ in chosen)
    rows: list[tuple[str, ...]] = []
    failed = 0
    for name, cost, feed_some in chosen:
        outcome = feed_some(round(arguments.inputs / shares / cost), seed=arguments.seed)
        failed += len(outcome.failures)
        refused = ", ".join(f"{kind} {n:,}" for kind, n in outcome.refused.most_common())
        numbers = (f"{outcome.inputs:,}", f"{outcome.decoded:,}", refused, str(len(outcome.failures)))
        rows.append((name, *numbers, f"{outcome.slowest_s:.2f}"))
        for file in keep(KEPT, name, outcome):
            sys.stderr.write(f"{name}: {file}\n{file.with_suffix('.txt').read_text()}\n")
        sys.stderr.write(f"{'  '.join(rows[-1])}\n")
    return rows, failed


if __name__ == "__main__":
    sys.exit(main())
