"""A soak: queries that always migrate, for hours, on a cluster whose machines come and go; see docs/soak.md.

    python tests/soak/run.py --hours 8
    python tests/soak/run.py --hours 2 --pace 2 --without "driver killed"

Then compares outputs and state with those of Spark's own provider, and writes `build/soak/report.md` and plots.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
BUILD = TESTS.parent / "build" / "soak"
sys.path.insert(0, str(TESTS))

_SAMPLE_SECONDS = 20.0
_WORKERS = 3
_MOST_WORKERS = 4
#: The events, and their probabilities in percent.
_EVENTS = (("worker killed", 30), ("worker decommissioned", 20), ("worker joined", 30), ("driver killed", 20))
_LOSSES = ("worker killed", "worker decommissioned")
#: A driver that doesn't end in this time is stuck.
_PATIENCE_SECONDS = 3600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--pause", type=float, default=60.0, help="seconds between two events, on average")
    parser.add_argument("--pace", type=float, default=0.2, help="seconds between two looks for what to feed")
    events = [name for name, _ in _EVENTS]
    parser.add_argument("--without", nargs="+", choices=events, default=[], help="what is not to happen")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    shutil.rmtree(BUILD, ignore_errors=True)
    root = BUILD / "run"
    root.mkdir(parents=True)
    prepare_jvms()
    # Imported after the paths of the JVMs are set.
    from soak.checking import differences
    from soak.report import write

    wrong = soaked(root, args)
    wrong = wrong or differences(root, BUILD / "oracle")
    write(BUILD, wrong)
    sys.stdout.write((BUILD / "report.md").read_text())
    return 1 if wrong else 0


def prepare_jvms() -> None:
    import prepared
    from jvms import SHARED, TESTS_JAR

    prepared.prepare_jvms(SHARED / "soak")
    os.environ["SOAK_JAR"] = str(TESTS_JAR)


def soaked(root: Path, args: argparse.Namespace) -> list[str]:
    """Runs the soak; returns what went wrong, if anything did."""
    from cluster.standalone import Standalone

    rng = random.Random(args.seed)
    with Standalone(root / "cluster", {"spark.decommission.enabled": "true"}) as cluster:
        for _ in range(_WORKERS):
            cluster.join()
        with Drivers(root, cluster.url, args.pace) as drivers:
            drivers.start()
            end = time.monotonic() + 3600 * args.hours
            due = time.monotonic() + args.pause
            while time.monotonic() < end:
                sample(root, drivers)
                if time.monotonic() >= due:
                    event(root, cluster, drivers, rng, args.without)
                    due = time.monotonic() + args.pause * rng.uniform(0.3, 1.7)
                drivers.keep_alive()
                time.sleep(min(_SAMPLE_SECONDS, max(0.0, end - time.monotonic())))
            (root / "stop").touch()
            return drivers.finished()


class Drivers:
    """The drivers of the soak, one after the other."""

    def __init__(self, root: Path, master: str, pace: float) -> None:
        self.root, self.master, self.pace = root, master, pace
        self.number = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def start(self) -> None:
        self.number += 1
        (self.root / "jvm").unlink(missing_ok=True)
        arguments = [str(self.root), self.master, str(self.number), str(self.pace)]
        command = [sys.executable, str(TESTS / "soak/driver.py"), *arguments]
        with (self.root / f"driver-{self.number}.log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL to the driver's Python and its JVM."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def jvm(self) -> int | None:
        file = self.root / "jvm"
        return int(file.read_text()) if file.exists() else None

    def keep_alive(self) -> None:
        """Restarts the driver if a failed query has ended it, as operations would, and notes that."""
        assert self.process is not None
        if self.process.poll() is not None:
            note(self.root / "events.jsonl", {"event": "driver failed", "number": self.number})
            self.start()

    def finished(self) -> list[str]:
        """Waits until a driver has ended."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() == 0:
                return []
            self.keep_alive()
            time.sleep(1.0)
        return [f"the driver did not come to its end in {_PATIENCE_SECONDS} s"]


def event(root: Path, cluster: Any, drivers: Drivers, rng: random.Random, without: list[str]) -> None:
    """Does one thing to the cluster or the driver; at least one worker is always left."""
    alive = [w for w in cluster.workers if w.poll() is None and w not in cluster.leaving]
    possible = [(name, weight) for name, weight in _EVENTS if name not in without]
    if not possible:
        return
    (what,) = rng.choices([name for name, _ in possible], [weight for _, weight in possible])
    if what in _LOSSES and len(alive) < _WORKERS:
        what = "worker joined"
    elif what == "worker joined" and len(alive) >= _MOST_WORKERS:
        losses = [name for name in _LOSSES if name not in without]
        if not losses:
            return
        what = losses[0]
    if what == "worker joined":
        # The test doesn't wait for the worker, as a busy machine is no fault.
        cluster.join(is_awaited=False)
    elif what == "worker killed":
        cluster.kill(rng.choice(alive))
    elif what == "worker decommissioned":
        cluster.decommission(rng.choice(alive))
    else:
        drivers.kill()
        drivers.start()
    note(root / "events.jsonl", {"event": what, "workers": len(alive)})


def sample(root: Path, drivers: Drivers) -> None:
    from soak.processes import disk, executors, taken

    pids = executors(root / "cluster")
    found = [t for t in map(taken, pids) if t is not None]
    told: dict[str, Any] = {"executors": len(found)}
    for name in ("rss", "heap", "old", "threads", "files"):
        values = [t[name] for t in found if name in t]
        told |= {f"executor {name}": max(values)} if values else {}
    if drivers.jvm is not None and (driver := taken(drivers.jvm)) is not None:
        told |= {f"driver {name}": value for name, value in driver.items()}
    scratch = Path(os.environ["BINSHIFT_TESTS_TMP"])
    states = sum(disk(folder / "checkpoint") for folder in root.iterdir() if (folder / "checkpoint").is_dir())
    note(root / "samples.jsonl", {**told, "disk of checkpoints": states, "disk of executors": disk(scratch)})


def note(file: Path, what: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.write(json.dumps({"t": time.time(), **what}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
