"""One life of a checkpoint, all of which follows from its seed."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import rows
from local.settings import AVRO, CHECKSUMS, IDS, JOIN_4, MIN_DELTAS, NO_CHANGELOG, ONE_EPOCH, STORE

#: Named instants (`Faults.scala`) at which a life may be slow: of a start, a step, an upload, a cleanup.
SLOW = (
    "run.begin",
    "run.clean",
    "run.begun",
    "entry.write",
    "snapshot.check",
    "snapshot.upload",
    "versions.deleted",
    "retired.delete",
    "retired.file",
    "export.begin",
    "export.start",
    "stage.file",
    "stage.done",
    "checkpoint.read",
    "switch.ingest",
    "switch.done",
    "sweep",
    "split.begin",
    "rows.answer",
    "standby.file",
    "standby.take",
)
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
BINSHIFT = STORE + "binshift."
RETAINED = "spark.sql.streaming.minBatchesToRetain"
#: Settings of which each is drawn in a part of all lives, by name.
DRAWN = {
    "checksums": CHECKSUMS,
    "format-2": IDS,
    "no-changelog": NO_CHANGELOG,
    "unload-on-commit": {STORE + "unloadOnCommit": "true"},
    "no-row-count": {"spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false"},
    "split": {BINSHIFT + "ship.minBytesToSplit": "1b"},
    "audit-all": {BINSHIFT + "audit": "all"},
    "small-chunks": {BINSHIFT + "ship.chunkBytes": "300b"},
    "short-timeout": {BINSHIFT + "ship.timeout": "2s"},
    "eager-cleanup": {
        STORE + "maintenanceInterval": "300ms",
        "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0.0",
    },
}


@dataclass(frozen=True)
class Life:
    """A checkpoint from its first epoch to its last.

    `killed` says who dies on the way, or is `frozen`, and `kills` how often. `conf` is that of the query's
    session, and `drawn` names what it consists of. An epoch has so many `rows`. The first `stock_epochs` are
    run by Spark's own provider, and its state is taken over then; at the end it is given back if `gives_back`.
    If it `winds_back`, epochs are sometimes taken out of the logs between a kill and the next start. If it has
    `deadlines`, each of its migrations has one, or a guard. Its JVMs take their time at the instants that are
    `slow`, so that more of the kills fall there.
    """

    root: Path
    seed: str
    killed: str
    master: str
    operator: str
    conf: dict[str, str]
    epochs: int
    kills: int
    drawn: tuple[str, ...] = ()
    rows: int = 40
    stock_epochs: int = 0
    gives_back: bool = False
    winds_back: bool = False
    deadlines: bool = False
    slow: tuple[str, ...] = ()

    @property
    def trace(self) -> Path:
        """The directory into which its processes write down what they do."""
        return self.root / "trace"

    @property
    def retained(self) -> int:
        """How many epochs the query can be wound back, and one more."""
        return int(self.conf.get(RETAINED, "20"))

    @staticmethod
    def of(
        root: Path,
        seed: str,
        killed: str,
        epochs: int,
        kills: int,
        operators: Sequence[str] = OPERATORS,
        *,
        deadlines: bool = False,
    ) -> Life:
        """The life of a seed, or the one most like it whose migrations have `deadlines`."""
        rng = random.Random(seed)
        operator = rng.choice(operators)
        is_cluster = killed == "executors" or rng.random() < 0.1
        master = CLUSTER if is_cluster and not deadlines else "local[2,100]"
        conf = {
            **ONE_EPOCH,
            "spark.sql.shuffle.partitions": str(rng.randint(1, 4)),
            "spark.sql.streaming.stateStore.binshift.bins": str(BINS),
        }
        drawn = [name for name in DRAWN if rng.random() < 0.25]
        for name in drawn:
            conf.update(DRAWN[name])
        for name, setting, chance in (
            ("avro", AVRO, 0.25 * operator.startswith("tws")),
            ("join-4", JOIN_4, 0.25 * operator.startswith("join")),
            (
                "standbys",
                {BINSHIFT + "standbys": "1", BINSHIFT + "standbys.interval": "500ms"},
                0.4 * (master == CLUSTER),
            ),
            ("retained", {RETAINED: str(rng.randint(1, 8))}, 0.5),
            ("deltas", {MIN_DELTAS: str(rng.randint(1, 5))}, 0.5),
        ):
            if rng.random() < chance:
                drawn.append(name)
                conf.update(setting)
        taken_over = rng.random() < 0.2
        drawn += ["takeover"] * taken_over
        winds_back = killed == "driver" and rng.random() < 0.3 and not deadlines
        gives_back = rng.random() < 0.2
        drawn += ["winds-back"] * winds_back + ["gives-back"] * gives_back
        rows = rng.choice([20, 40, 40, 300, 3000])
        slow = tuple(rng.sample(SLOW, rng.choice([0, 1, 2, 4])))
        if deadlines:
            drawn.append("deadlines")
            slow = (*slow, "rollback.begun")
        return Life(
            root,
            seed,
            killed,
            master,
            operator,
            conf,
            epochs,
            kills,
            tuple(drawn),
            rows=rows,
            stock_epochs=rng.randint(1, 4) * taken_over,
            gives_back=gives_back,
            winds_back=winds_back,
            deadlines=deadlines,
            slow=slow,
        )

    def begin(self) -> None:
        """Writes down what the life is to be, and all of its input, an epoch a file."""
        self.root.mkdir(parents=True)
        write_input(self.root / "to-come", self.epochs, self.rows)
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
        return Life(**{**fields, "root": root, "drawn": tuple(fields["drawn"]), "slow": tuple(fields["slow"])})


def name(epoch: int) -> str:
    return f"{epoch:06}.json"


def write_input(folder: Path, epochs: int, n: int) -> None:
    """The files have the times of their epochs, by which Spark puts them in order."""
    folder.mkdir()
    for epoch in range(epochs):
        file = folder / name(epoch)
        file.write_text("\n".join(json.dumps(r) for r in rows(epoch, n, keys=3 * n // 2)))
        os.utime(file, (1_700_000_000 + 10 * epoch,) * 2)


def committed(root: Path) -> int:
    """The newest epoch in the log of commits, -1 before there is any."""
    folder = root / "checkpoint" / "commits"
    return max((int(f.name) for f in folder.glob("[0-9]*")), default=-1) if folder.is_dir() else -1
