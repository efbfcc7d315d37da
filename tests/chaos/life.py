"""What one life of a checkpoint is to be: all of it follows from its seed."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import rows
from local.settings import AVRO, CHECKSUMS, IDS, JOIN_4, NO_CHANGELOG, ONE_EPOCH, SNAPSHOTS

#: Operators whose output is a function of their input, epoch by epoch.
OPERATORS = (
    "count",
    "tumbling-append",
    "session-fixed",
    "session-dynamic",
    "dedup-watermark",
    "dedup-within-watermark",
    "join-inner",
    "join-full",
    "pandas-with-state",
    "jvm-with-state",
    "tws-rows",
    "tws-jvm",
)
BINS = 24
CLUSTER = "local-cluster[2,1,1024]"


@dataclass(frozen=True)
class Life:
    """A checkpoint from its first epoch to its last.

    `killed` says who dies on the way, and `kills` how often. `conf` is that of the query's session.
    """

    root: Path
    seed: str
    killed: str
    master: str
    operator: str
    conf: dict[str, str]
    epochs: int
    kills: int

    @staticmethod
    def of(
        root: Path, seed: str, killed: str, epochs: int, kills: int, operators: Sequence[str] = OPERATORS
    ) -> Life:
        rng = random.Random(seed)
        operator = rng.choice(operators)
        master = CLUSTER if killed == "executors" or rng.random() < 0.1 else "local[2,100]"
        conf = {
            **ONE_EPOCH,
            "spark.sql.shuffle.partitions": str(rng.randint(1, 4)),
            "spark.sql.streaming.stateStore.binshift.bins": str(BINS),
        }
        extras = [SNAPSHOTS, CHECKSUMS, IDS, NO_CHANGELOG]
        extras += [AVRO] * operator.startswith("tws") + [JOIN_4] * operator.startswith("join")
        for extra in extras:
            if rng.random() < 0.25:
                conf.update(extra)
        return Life(root, seed, killed, master, operator, conf, epochs, kills)

    def begin(self) -> None:
        """Writes down what the life is to be, and all of its input, an epoch a file."""
        self.root.mkdir(parents=True)
        write_input(self.root / "to-come", self.epochs)
        (self.root / "life.json").write_text(json.dumps({**asdict(self), "root": str(self.root)}))

    def feed(self, last: int) -> None:
        """Lets the input of the epochs up to `last` come.

        Spark's source of files makes one epoch of two files if it dies in between finding them and logging the
        epoch, so the next one must not come before an epoch is committed.
        """
        (self.root / "input").mkdir(exist_ok=True)
        for epoch in range(min(last + 1, self.epochs)):
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.root / "to-come" / name(epoch), self.root / "input" / name(epoch))

    @staticmethod
    def load(root: Path) -> Life:
        fields = json.loads((root / "life.json").read_text())
        return Life(**{**fields, "root": root})


def name(epoch: int) -> str:
    return f"{epoch:06}.json"


def write_input(folder: Path, epochs: int) -> None:
    """The files have the times of their epochs, by which Spark puts them in order."""
    folder.mkdir()
    for epoch in range(epochs):
        file = folder / name(epoch)
        file.write_text("\n".join(json.dumps(r) for r in rows(epoch)))
        os.utime(file, (1_700_000_000 + 10 * epoch,) * 2)


def committed(root: Path) -> int:
    """The newest epoch in the log of commits, -1 before there is any."""
    folder = root / "checkpoint" / "commits"
    return max((int(f.name) for f in folder.glob("[0-9]*")), default=-1) if folder.is_dir() else -1
