"""Runs the benchmarks, keeps what they showed, and writes the report.

A run that is among the results is not run again, so a suite that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

import stores
from experiments import SIZES, experiments
from harness.bench import Bench
from harness.experiment import Case, Experiment
from harness.report import write_report
from harness.results import Results
from harness.run import Runner
from harness.session import session


def main() -> None:
    args = arguments()
    size = SIZES[args.size]
    chosen = [e for e in experiments(size) if not args.only or e.id in args.only or e.group in args.only]
    results = Results(args.results / args.size)
    todo = [t for t in turns(chosen, args.repeats) if not results.has(t[0].id, t[1].name, t[2])]
    if todo and not args.report:
        run(todo, args, results)
    write_report(results, experiments(size), args.size, args.results.parent, args.markdown)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument(
        "--only", nargs="+", metavar="ID", help="experiments, or groups of them; see the report"
    )
    parser.add_argument("--repeats", type=int, help="instead of what the size says")
    parser.add_argument("--report", action="store_true", help="run nothing; write the report of what is there")
    parser.add_argument(
        "--markdown", type=Path, help="also write the report as Markdown, with its pictures beside it"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("build/benchmarks/results"), help="where runs are kept"
    )
    parser.add_argument("--scratch", type=Path, help="parent of the directory for all data")
    parser.add_argument(
        "--verify", action="store_true", help="compare the final state of runs of the same input"
    )
    return parser.parse_args()


def turns(chosen: list[Experiment], repeats: int | None) -> Iterator[tuple[Experiment, Case, int]]:
    """All runs, so that the repetitions of a case are spread over the whole time of its experiment.

    Each repetition begins with another case.
    """
    for experiment in chosen:
        count = repeats or experiment.repeats
        for repeat in range(count):
            shift = repeat * len(experiment.cases) // count
            for case in [*experiment.cases[shift:], *experiment.cases[:shift]]:
                yield experiment, case, repeat


def run(todo: list[tuple[Experiment, Case, int]], args: argparse.Namespace, results: Results) -> None:
    """Does the runs, in one session."""
    with tempfile.TemporaryDirectory(dir=args.scratch, ignore_cleanup_errors=True) as scratch:
        jar = Path(scratch) / "benchmarks.jar"
        stores.compile_to(jar)
        spark = session(Path(scratch), **{"spark.jars": str(jar)})
        runner = Runner(spark, Path(scratch), SIZES[args.size].phases)
        bench = Bench(runner, args.verify)
        with tqdm(todo, unit="run") as bar:
            for experiment, case, repeat in bar:
                bar.set_description(f"{experiment.id} {' '.join(map(str, case.name.values()))}")
                results.add(case.do(bench=bench, repeat=repeat))
        runner.close()
        spark.stop()


if __name__ == "__main__":
    main()
