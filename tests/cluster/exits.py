"""Ends programs at random instants, measures how long their JVMs live on, and finds the files that they leave.

    PYTHONPATH=tests python tests/cluster/exits.py --minutes 30
    PYTHONPATH=tests python tests/cluster/exits.py --page

Goes on where it stopped: `exits.jsonl` beside this file has a line for each program. Ends with 1 if a JVM
didn't end in time, or left files. `--page` writes the table into docs/chaos.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from cluster.ending import OF_DRIVERS, OF_EXECUTORS, Drawn
from cluster.processes import state
from devtools.executors import executor_processes
from devtools.pages import with_part
from devtools.results import commit, read
from harness import until
from jvms import SPARK_HOME
from prepared import prepare_jvms

#: A JVM with a deadlock at its exit never ends; on a busy machine, a healthy one takes some seconds.
PATIENCE_SECONDS = 10.0
PROGRAM = Path(__file__).with_name("ending.py")
#: The directories of stores, of copies for them, and of Spark's blocks.
LEFT = ("StateStoreId*", "binshift-*", "blockmgr-*")
LOCAL = "local[2]"
CLUSTER = "local-cluster[4,1,1024]"
#: Ways to end, by master. A local program that is killed has no chance to delete anything.
WAYS = {LOCAL: OF_DRIVERS[:-1], CLUSTER: OF_DRIVERS + OF_EXECUTORS}

REPO = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("exits.jsonl")
PAGE = REPO / "docs" / "chaos.md"
#: The table stands between these two lines of the page.
MARKS = (
    "<!-- Exits below: written by `tests/cluster/exits.py --page`. -->\n\n",
    "\n\n<!-- Exits above. -->",
)


@dataclass(frozen=True)
class Exit:
    """How the processes of a program have ended.

    `drivers` and `executors` are the numbers of JVMs that had to end in order, and `seconds` is what the
    slowest of them took. Those that were alive after `PATIENCE_SECONDS` are `stuck`. What is `left` are
    directories, and the reports of JVMs that crashed.
    """

    how: str
    master: str
    seed: int
    drawn: dict[str, Any]
    drivers: int
    executors: int
    seconds: float
    stuck: int
    left: list[str]

    @property
    def is_clean(self) -> bool:
        return not self.stuck and not self.left


class Watch:
    """Watches processes from the instants at which they have to end, and kills those that don't."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[int, float] = {}
        self.stuck: list[int] = []
        self._since: dict[int, float] = {}

    def add(self, pids: Iterable[int], at: float) -> int:
        """Returns how many of them it didn't know yet."""
        new = set(pids) - self.seconds.keys() - self._since.keys()
        self._since |= dict.fromkeys(new, at)
        return len(new)

    def look(self) -> bool:
        """Whether all have ended, or were killed."""
        for pid, since in list(self._since.items()):
            took = time.monotonic() - since
            is_alive = state(pid) not in ("", "Z")
            if is_alive and took < PATIENCE_SECONDS:
                continue
            if is_alive:
                self.stuck.append(pid)
                self._keep_stacks(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.seconds[pid] = took
            del self._since[pid]
        return not self._since

    def _keep_stacks(self, pid: int) -> None:
        """A JVM that waits for its own exit doesn't answer, so its stacks are the native ones."""
        if shutil.which("gdb"):
            command = ["gdb", "-batch", "-p", str(pid), "-ex", "thread apply all bt"]
            with (self.folder / f"stacks-{pid}").open("w") as out:
                subprocess.run(command, stdout=out, stderr=out, timeout=60, check=False)


def end_program(folder: Path, how: str, seed: int = 0, master: str = LOCAL, *options: str) -> Exit:
    """Runs a program to its end, watches its JVMs, and kills those that are still alive."""
    local = folder / "local"
    (local / "executors").mkdir(parents=True)
    environment = os.environ | dict.fromkeys(("SPARK_LOCAL_DIRS", "TMPDIR", "BINSHIFT_TESTS_TMP"), str(local))
    command = [sys.executable, str(PROGRAM), str(folder), how, f"--seed={seed}", f"--master={master}", *options]
    out, err = folder / "out", folder / "err"
    # No pipe for what it says, as a JVM that lives on would keep it open.
    with out.open("w") as says, err.open("w") as fails:
        program = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=says, stderr=fails, text=True, cwd=folder
        )
    watch, jvms, application = Watch(folder), Counter[str](), ""
    heard, deadline = 0, time.monotonic() + 400
    try:
        while True:
            is_over = program.poll() is not None
            # The last part is no line yet.
            for line in out.read_text().split("\n")[heard:-1]:
                heard += 1
                # A JVM that crashes says so here.
                if not line.startswith("{"):
                    continue
                told = json.loads(line)
                application = told["application"]
                for role in ("drivers", "executors"):
                    jvms[role] += watch.add(told[role], told["at"])
            assert heard or not is_over, err.read_text()[-4000:]
            assert time.monotonic() < deadline, err.read_text()[-4000:]
            if watch.look() and heard:
                if is_over:
                    break
                _go_on(program)
            time.sleep(0.05)
    finally:
        program.kill()
        program.communicate()
    # Executors that were started in place of others, so late that the program didn't see them.
    jvms["executors"] += watch.add(executor_processes(application).values(), time.monotonic())
    assert until(watch.look)
    left = sorted(str(p.relative_to(local)) for name in LEFT for p in local.rglob(name))
    if how == "kill":
        # What the driver leaves, and the workers of a local cluster with it, is nobody's to delete.
        left = [p for p in left if any(part.startswith("executor") for part in Path(p).parts)]
    work = SPARK_HOME / "work" / application
    left += [f.name for of in (folder, work) for f in of.rglob("hs_err_pid*.log")]
    drawn = asdict(Drawn.of(seed, is_cluster=master == CLUSTER))
    slowest = round(max(watch.seconds.values()), 1)
    return Exit(how, master, seed, drawn, jvms["drivers"], jvms["executors"], slowest, len(watch.stuck), left)


def _go_on(program: subprocess.Popen[str]) -> None:
    """Tells a program whose executors have ended that it may end, too."""
    assert program.stdin is not None
    with suppress(BrokenPipeError):
        program.stdin.write("\n")
        program.stdin.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="begins no program after so many")
    parser.add_argument("--programs", type=int, help="at most as many in this call")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="only write what was done into the page")
    args = parser.parse_args()
    done = read(args.results)
    if args.page:
        PAGE.write_text(with_part(PAGE.read_text(), MARKS, table(done)))
        return 0
    root = Path(tempfile.mkdtemp(prefix="binshift-exits-"))
    prepare_jvms(root / "scratch")
    began, clean = time.monotonic(), True
    for seed in count(len(done)):
        if seed - len(done) == args.programs or time.monotonic() - began > args.minutes * 60:
            break
        # A local program and a cluster in turn, each in all of its ways.
        master = list(WAYS)[seed % len(WAYS)]
        how = WAYS[master][seed // len(WAYS) % len(WAYS[master])]
        ended = end_program(root / str(seed), how, seed, master)
        line = json.dumps({"commit": commit(REPO), **asdict(ended)})
        print(line, flush=True)
        with args.results.open("a") as results:
            results.write(line + "\n")
        if ended.is_clean:
            shutil.rmtree(root / str(seed))
        else:
            clean = False
            print(f"kept in {root / str(seed)}", flush=True)
    if clean:
        shutil.rmtree(root)
    return 0 if clean else 1


def table(done: list[dict[str, Any]]) -> str:
    """By way to end and by master."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for d in done:
        for key in ((d["how"], d["master"].partition("[")[0]), ("all", "all")):
            groups[key].append(d)
    lines = [
        "| way | master | programs | drivers | executors | slowest JVM | after 10 s | left files |",
        "|" + "---|" * 8,
    ]
    for (how, master), of in sorted(groups.items(), key=lambda item: (item[0] == ("all", "all"), item[0])):
        drivers, executors, stuck = (sum(d[key] for d in of) for key in ("drivers", "executors", "stuck"))
        slowest = max(d["seconds"] for d in of)
        left = sum(bool(d["left"]) for d in of)
        cells = (how, master, len(of), drivers, executors, f"{slowest} s", stuck, left)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    commits = ", ".join(f"`{c}`" for c in dict.fromkeys(d["commit"] for d in done))
    return "\n".join(lines) + f"\n\nCommits: {commits}."


if __name__ == "__main__":
    sys.exit(main())
