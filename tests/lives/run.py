"""Lives through quick lives, each in seconds, until one comes out wrong or the time is over.

    PYTHONPATH=tests python tests/lives/run.py --minutes 10
    PYTHONPATH=tests python tests/lives/run.py --seed 7-31

A life that comes out wrong is made shorter and printed as a test. Ends with 1 then.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from itertools import count, islice
from pathlib import Path

from devtools.results import commit
from lives.jvm import session_of_lives
from lives.life import Life
from lives.shrink import shrunk
from lives.themes import THEMES
from prepared import prepare_jvms

REPO = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", help="of all lives; or that of a single one, which has a dash")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=2, help="JVMs side by side")
    parser.add_argument("--themes", nargs="+", choices=THEMES, help="only lives with these", default=())
    parser.add_argument("--first", type=int, default=0, help="how many of the lives to leave out")
    parser.add_argument("--step", type=int, default=1, help="from one of the lives to the next")
    parser.add_argument(
        "--shrink", type=float, default=5.0, metavar="MINUTES", help="of looking for a shorter one"
    )
    parser.add_argument(
        "--oracles", type=Path, help="where the results of Spark's own provider are kept for other runs"
    )
    parser.add_argument(
        "--results", type=Path, help="a file that gets a line of JSON for each life that was right"
    )
    given = parser.parse_args(arguments)
    seed = given.seed or str(random.SystemRandom().randrange(10**6))
    if given.processes > 1 and "-" not in seed:
        return _side_by_side(given, seed)
    return _alone(given, seed)


def _side_by_side(given: argparse.Namespace, seed: str) -> int:
    """The first process that finds something ends the others."""
    print(f"seed {seed}", flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="binshift-lives-"))
    # The processes would be in each other's way.
    prepare_jvms(scratch)
    own = [sys.executable, __file__, "--seed", seed, "--minutes", str(given.minutes), "--processes", "1"]
    own += ["--shrink", str(given.shrink), "--oracles", str(given.oracles or scratch / "oracles")]
    own += ["--results", str(given.results)] if given.results else []
    own += ["--themes", *given.themes] if given.themes else []
    running = [
        subprocess.Popen([*own, "--first", str(given.first + i), "--step", str(given.processes)])
        for i in range(given.processes)
    ]
    try:
        while any(p.poll() is None for p in running):
            if any(p.poll() for p in running):
                return 1
            time.sleep(0.5)
        return max(p.returncode for p in running)
    finally:
        for p in running:
            p.terminate()
        for p in running:
            p.wait()
        shutil.rmtree(scratch)


def _alone(given: argparse.Namespace, seed: str) -> int:
    from lives.oracle import Oracles
    from lives.play import WrongError, play

    root = Path(tempfile.mkdtemp(prefix="binshift-lives-"))
    deadline = time.monotonic() + given.minutes * 60
    with session_of_lives(root) as spark:
        oracles = Oracles(spark, given.oracles or root / "oracles")
        roots = (root / f"life-{n}" for n in count())

        def wrong(life: Life) -> str | None:
            try:
                counts = play(spark, life, next(roots), oracles)
            except WrongError as error:
                return str(error)
            except Exception as error:
                # What no life expects, for example a call that fails.
                return f"{type(error).__name__}: {error}"
            line = json.dumps({"commit": commit(REPO), "operator": life.operator, **counts})
            print(line, file=sys.stderr)
            if given.results:
                with given.results.open("a") as out:
                    out.write(line + "\n")
            return None

        for of in islice(_seeds(seed, given.themes), given.first, None, given.step):
            if time.monotonic() > deadline:
                break
            began = time.monotonic()
            life = Life.of(of)
            found = wrong(life)
            print(
                f"life {of}: {life.operator}, {time.monotonic() - began:.1f} s, {found or 'right'}", flush=True
            )
            if found:
                shorter = shrunk(life, lambda other: wrong(other) is not None, given.shrink * 60)
                print(f"{found}\nshortest: {shorter!r}", flush=True)
                return 1
    shutil.rmtree(root)
    return 0


def _seeds(seed: str, themes: Collection[str]) -> Iterator[str]:
    """The seeds of a run's lives that have one of the themes, or any; or the seed of a single life."""
    if "-" in seed:
        return iter([seed])
    return (of for n in count() if Life.theme_of(of := f"{seed}-{n}") in (themes or THEMES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
