"""Kills drivers and executors of queries that always migrate, until there were enough kills; see docs/chaos.md.

    python tests/chaos/run.py --seed 7 --drivers 300 --executors 300 --frozen 100
    python tests/chaos/run.py --minutes 30
    python tests/chaos/run.py --deadlines --drivers 500

Goes on where it stopped, on any machine: `results.jsonl` beside this file has a line for each life.
`--page` writes its table into docs/chaos.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from devtools.pages import with_part
from devtools.results import commit, read

TESTS = Path(__file__).resolve().parents[1]
REPO = TESTS.parent
BUILD = REPO / "build" / "chaos"
RESULTS = TESTS / "chaos" / "results.jsonl"
#: The results of `make lives`.
QUICK = TESTS / "lives" / "results.jsonl"
PAGE = REPO / "docs" / "chaos.md"
#: The table stands between these two lines of the page.
MARKS = ("<!-- Below: written by `tests/chaos/run.py --page`. -->\n\n", "\n\n<!-- Above. -->")
PAIRS = (
    "<!-- Pairs below: written by `tests/chaos/run.py --page`. -->\n\n",
    "\n\n<!-- Pairs above. -->",
)
KINDS = ("driver", "executors", "frozen")
#: Lives with kills of drivers in which each migration has a deadline or a guard.
DEADLINES = "driver, deadlines"
sys.path.insert(0, str(TESTS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", help="of all lives; a new one is drawn and printed, or that of the results")
    parser.add_argument("--drivers", type=int, default=300, metavar="KILLS")
    parser.add_argument("--executors", type=int, default=300, metavar="KILLS")
    parser.add_argument(
        "--frozen", type=int, default=100, metavar="DRIVERS", help="frozen, replaced, and woken up"
    )
    parser.add_argument("--minutes", type=float, help="begins no life after so many")
    parser.add_argument("--only", choices=KINDS, help="only lives of this kind")
    parser.add_argument("--lives", type=int, help="at most as many in this call")
    parser.add_argument("--epochs", type=int, default=40, help="of a life")
    parser.add_argument("--operators", nargs="+", default=None, help="only these")
    parser.add_argument("--kills", type=int, default=30, help="of a life, at most")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--deadlines",
        action="store_true",
        help="only kill drivers, and give each migration a deadline or a guard",
    )
    parser.add_argument("--page", action="store_true", help="only write what was done into the page")
    args = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    done = read(args.results)
    if args.page:
        PAGE.write_text(page(PAGE.read_text(), done))
        return 0
    seed = args.seed or (done[-1]["seed"] if done else str(random.SystemRandom().randrange(10**6)))
    # Raises an exception, so that processes that were started end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    print(f"seed {seed}, results in {args.results}", flush=True)
    prepare_jvms()
    wanted = {"driver": args.drivers, "executors": args.executors, "frozen": args.frozen}
    if args.deadlines:
        wanted = {DEADLINES: args.drivers}
    elif args.only:
        wanted = {args.only: wanted[args.only]}
    wrong, lives, began = 0, 0, time.monotonic()
    while (args.lives is None or lives < args.lives) and (
        args.minutes is None or time.monotonic() - began < args.minutes * 60
    ):
        kills = {kind: sum(d["kills"] for d in done if who(d) == kind) for kind in wanted}
        short = [kind for kind in wanted if kills[kind] < wanted[kind]]
        if not short:
            break
        behind = min(short, key=lambda kind: kills[kind] / wanted[kind])
        index = sum(d["seed"] == seed for d in done)
        result = one(seed, index, behind, args)
        with args.results.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)
        done.append(result)
        wrong += "wrong" in result
        lives += 1
    print(table(done))
    return 1 if wrong else 0


def one(seed: str, index: int, killed: str, args: argparse.Namespace) -> dict[str, Any]:
    from chaos.killing import UndoneError, live
    from chaos.life import OPERATORS, Life

    root = BUILD / "lives" / f"{seed}-{index}"
    shutil.rmtree(root, ignore_errors=True)
    operators = tuple(args.operators or OPERATORS)
    deadlines = killed == DEADLINES
    who_dies = "driver" if deadlines else killed
    life = Life.of(root, f"{seed}-{index}", who_dies, args.epochs, args.kills, operators, deadlines=deadlines)
    began = time.monotonic()
    facts = {
        "commit": commit(REPO),
        "seed": seed,
        "index": index,
        "killed": who_dies,
        "master": life.master,
        "operator": life.operator,
    }
    facts["drawn"] = [*life.drawn, f"{life.rows} rows", *(f"slow {point}" for point in life.slow)]
    facts["conf"] = {k.removeprefix("spark.sql."): v for k, v in life.conf.items()}
    try:
        facts |= live(life, BUILD / "oracles")
        shutil.rmtree(root)
    except UndoneError as undone:
        facts |= {**undone.facts, "wrong": str(undone), "kept": str(root)}
    return {**facts, "epochs": args.epochs, "seconds": round(time.monotonic() - began)}


def who(result: dict[str, Any]) -> str:
    """Who was killed in a life, and whether its migrations had deadlines."""
    return DEADLINES if "deadlines" in result.get("drawn", ()) else str(result["killed"])


def table(done: list[dict[str, Any]]) -> str:
    """The table of results, by operator and by who was killed."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 6)
    for d in done:
        row = [1, d["kills"], d["epochs"], d.get("steps", 0), d.get("bins", 0), int("wrong" in d)]
        for key in ((d["operator"], who(d)), ("all", who(d))):
            sums[key] = [a + b for a, b in zip(sums[key], row, strict=True)]
    lines = [
        "| operator | killed | lives | kills | epochs | steps taken | bins moved | wrong |",
        "|" + "---|" * 8,
    ]
    lines += [f"| {' | '.join(map(str, [*key, *row]))} |" for key, row in sorted(sums.items())]
    return "\n".join(lines)


def page(text: str, done: list[dict[str, Any]]) -> str:
    """The text of the page with the tables of the lives that were done, and of the ways of state that met."""
    from traces import ways

    text = with_part(text, MARKS, table(done))
    long, quick = ([d["pairs"] for d in of if "pairs" in d] for of in (done, read(QUICK)))
    told = f"Of {len(long)} lives with kills, and {len(quick)} quick ones.\n\n"
    return with_part(text, PAIRS, told + ways.table([*long, *quick]))


def prepare_jvms() -> None:
    """The files that the tests' JVMs share, for lives outside of pytest; kept until the jar is another one."""
    shared = BUILD / "shared"
    os.environ.setdefault("BINSHIFT_TESTS_SHARED", str(shared))
    import binshift
    import jvms
    import prepared

    if jvms.ARCHIVE.exists() and jvms.ARCHIVE.stat().st_mtime < binshift.jar_path().stat().st_mtime:
        shutil.rmtree(shared)
    prepared.prepare_jvms(jvms.SHARED / "scratch")
    os.environ["CHAOS_JAR"] = str(jvms.TESTS_JAR)


if __name__ == "__main__":
    sys.exit(main())
