"""Runs the benchmarks, keeps the results, and writes the report.

A run that has a result isn't repeated, so a suite that was stopped continues where it was. A run that other
processes disturbed is repeated: at once if the size has the patience, else by the next call.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tqdm import tqdm

from experiments import SIZES, experiments
from experiments.common import BATCHED, ON_DEMAND, PREPARED, UNPREPARED
from experiments.sections import SECTIONS
from keycount import keycount
from openloop.action import Phases
from openloop.bench import Bench
from openloop.experiment import Case, Experiment
from openloop.report import Report
from openloop.resources import others_share
from openloop.results import MAX_OTHERS, Record, Results, final_states, read_tables
from openloop.runner import Runner
from openloop.session import session
from streams import nexmark

SHORT = Phases(3, 3, 3, 6)
#: For how many seconds to check whether the machine is quiet.
LOOK = 10
#: Short runs, of an operator with one family of rows and of others with several.
COUNT, JOINS = keycount(500_000, 20_000, 150, 1.0), nexmark("q4", 1_000, 150, 40_000)
WARM_UP = ((COUNT, UNPREPARED), (COUNT, ON_DEMAND), (COUNT, PREPARED), (COUNT, BATCHED), (JOINS, BATCHED))
#: These execute most of the code.
BRIEF_WARM_UP = (WARM_UP[0], WARM_UP[-1])
ROOT = Path(__file__).parents[2]
RUNS = ROOT / "build" / "benchmarks" / "runs"
#: The runs of the published report, as tables.
PUBLISHED = ROOT / "docs" / "benchmarks"


def main() -> None:
    args = arguments()
    size = SIZES[args.size]
    chosen = [e for e in experiments(size) if not args.only or e.id in args.only or e.group in args.only]
    results = Results(args.results / args.size)
    if not args.report:
        todo = [t for t in turns(chosen, args.repeats, args.runs) if not results.has(t[0].id, t[1].name, t[2])]
        if todo:
            run(todo, args, results)
    records = results.all()
    if args.size == "full":
        records = with_published(records)
    report = Report(chosen, records, args.size, SECTIONS)
    report.write(args.results.parent / args.size)
    print(report)
    if args.publish:
        if not records:
            raise SystemExit(f"there are no runs of size {args.size} to publish; 'make bench' does them")
        report.publish(ROOT / "BENCHMARKS.md", PUBLISHED)
    wrong = [w for w, states in final_states(report.records).items() if len(states) > 1]
    if wrong:
        raise SystemExit(f"runs of {', '.join(wrong)} ended with different states; see the report")


def with_published(records: list[Record]) -> list[Record]:
    """Adds the published runs of experiments without runs, so that only some have to be repeated."""
    new = {r.experiment for r in records}
    return [*records, *(r for r in read_tables(PUBLISHED) if r.experiment not in new)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument(
        "--only", nargs="+", metavar="ID", help="experiments, or groups of them; the report has their names"
    )
    parser.add_argument(
        "--runs", nargs="+", metavar="NAME", help="of those, what the report calls so, such as idle or q5"
    )
    parser.add_argument("--repeats", type=int, help="instead of what the size says")
    parser.add_argument("--report", action="store_true", help="run nothing; report what is there")
    parser.add_argument("--publish", action="store_true", help="write BENCHMARKS.md and what belongs to it")
    parser.add_argument("--results", type=Path, default=RUNS, help="where runs are kept")
    parser.add_argument("--scratch", type=Path, help="parent of the directory for all data")
    parser.add_argument(
        "--verify", action="store_true", help="compare the final state of runs of the same input"
    )
    return parser.parse_args()


def turns(
    chosen: list[Experiment], repeats: int | None, runs: list[str] | None = None
) -> Iterator[tuple[Experiment, Case, int]]:
    """All runs, so that the repetitions of a case are spread over the whole time of its experiment.

    Each repetition begins with another case.
    """
    for experiment in chosen:
        count = repeats or experiment.repeats
        for repeat in range(count):
            shift = repeat * len(experiment.cases) // count
            for case in [*experiment.cases[shift:], *experiment.cases[:shift]]:
                if runs is None or not {str(x) for x in case.name.values()}.isdisjoint(runs):
                    yield experiment, case, repeat


def run(todo: list[tuple[Experiment, Case, int]], args: argparse.Namespace, results: Results) -> None:
    """Does the runs, in one session."""
    size = SIZES[args.size]
    with tempfile.TemporaryDirectory(dir=args.scratch, ignore_cleanup_errors=True) as scratch:
        spark = session(Path(scratch))
        runner = Runner(spark, Path(scratch), SHORT)
        bench = Bench(runner, args.verify)
        # Queries run for weeks, so the time in which the JVM compiles code isn't measured.
        for load, action in BRIEF_WARM_UP if size.is_brief else WARM_UP:
            runner.run(load, action)
        runner.phases = size.phases
        with tqdm(todo, unit="run") as bar:
            for experiment, case, repeat in bar:
                bar.set_description(f"{experiment.id} {' '.join(map(str, case.name.values()))}")
                do = partial(case.do, bench=bench, repeat=repeat)
                try:
                    results.add(undisturbed(do, size.patience))
                except TimeoutError as e:
                    bar.write(f"{bar.desc}{e}; the next call does this run again", sys.stderr)
        runner.close()
        spark.stop()


def undisturbed(do: Callable[[], Record], patience: float) -> Record:
    """Does a run when the machine is quiet, and again if it was disturbed, within `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        while time.monotonic() < deadline and others_share(LOOK) > MAX_OTHERS:
            pass
        record = do()
        if not record.is_disturbed or time.monotonic() > deadline:
            return record


if __name__ == "__main__":
    main()
