"""Explores all sizes of the model (`make model`). Ends with 1 if a size has a violation or a control none."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from model.controls import BEFORE, CONTROLS, ENDLESS, WINDOWS
from model.explorer import Outcome, explore
from model.liveness import migrations_end
from model.rules import Guard
from model.sizes import LARGE, LIVE, LONG_LIVES, SMALL
from model.walks import walk

SIZES = SMALL | LARGE


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--size", choices=SIZES, metavar="NAME", help="explore this size only, and print how it goes"
    )
    parser.add_argument(
        "--off",
        choices=[g.name for g in Guard],
        nargs="*",
        default=[],
        metavar="GUARD",
        help="without these guards",
    )
    parser.add_argument("--limit", type=int, default=4_000_000, help="states of a size, at most")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--walk",
        type=float,
        default=60,
        metavar="SECONDS",
        help="of random walks through long lives of each kind",
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.size:
        rules = replace(SIZES[given.size], off=frozenset(Guard[name] for name in given.off))
        outcome = explore(rules, given.limit, progress=True)
        print(outcome)
        return 0 if outcome.fault is None else 1
    wrong = _controls() + _sizes(given.limit, given.processes) + _walks(given.walk, given.seed, given.processes)
    print(f"{wrong} wrong" if wrong else "as it should be")
    return 1 if wrong else 0


def _controls() -> int:
    """Prints the shortest trace of each; returns how many have none."""
    holes = 0
    for name, control in [*((c.name, c) for c in CONTROLS), *BEFORE.items(), *WINDOWS.items()]:
        holes += _shown(f"without: {name}", explore(control.rules), is_fault_wanted=True)
    for control in ENDLESS:
        holes += _shown(f"without: {control.name}", migrations_end(control.rules), is_fault_wanted=True)
    return holes


def _sizes(limit: int, processes: int) -> int:
    begun, wrong, states = time.monotonic(), 0, 0
    with ProcessPoolExecutor(processes, max_tasks_per_child=1) as pool:
        waiting = {name: pool.submit(_explored, name, limit) for name in [*LARGE, *SMALL]}
        waiting |= {f"migrations end: {name}": pool.submit(_ended, name) for name in LIVE}
        for name, future in waiting.items():
            outcome = future.result()
            states += outcome.states
            wrong += _shown(name, outcome)
    print(
        f"{states:,} states of {len(waiting)} sizes in {(time.monotonic() - begun) / 60:.0f} minutes",
        flush=True,
    )
    return wrong


def _walks(seconds: float, seed: int, processes: int) -> int:
    with ProcessPoolExecutor(processes, max_tasks_per_child=1) as pool:
        waiting = {name: pool.submit(_walked, name, seconds, seed) for name in LONG_LIVES} if seconds else {}
        return sum(_shown(f"walks: {name}", future.result()) for name, future in waiting.items())


def _shown(name: str, outcome: Outcome, is_fault_wanted: bool = False) -> int:
    print(f"{name}: {outcome}", flush=True)
    return int((outcome.fault is not None) != is_fault_wanted)


def _explored(name: str, limit: int) -> Outcome:
    return explore(SIZES[name], limit)


def _ended(name: str) -> Outcome:
    return migrations_end(LIVE[name])


def _walked(name: str, seconds: float, seed: int) -> Outcome:
    return walk(LONG_LIVES[name], seconds, seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
