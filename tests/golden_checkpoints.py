"""Checkpoints of each format of binshift, written by the first build with that format.

An archive is never written again: a build that changes the format adds archives of its own, and goes on with
these. They are of the oldest supported Spark, so that every other supported Spark can continue from them.

    .venv/bin/python tests/golden_checkpoints.py     writes those that are missing; needs 'make setup SPARK=4.1'
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: The format that this build writes; `layout.json` names it.
FORMAT = 1
FOLDER = HERE / "golden_checkpoints"
#: The Spark that writes them.
SPARK = "4.1"
EPOCHS = range(6)
#: The placeholder in an archive for the directory of the run.
ROOT = b"/golden-root"


@dataclass(frozen=True)
class Golden:
    """The checkpoint of a query of tests/local/queries.py, after `EPOCHS`.

    Attributes
    ----------
    name : str
        That of the query.
    settings : str
        A name of its settings; empty if they are Spark's.
    targets : dict
        By epoch, what the bins go to after it, as tests/cluster/older_spark.py takes it.
    """

    name: str
    settings: str = ""
    conf: dict[str, str] = field(default_factory=dict)
    targets: dict[int, int | str] = field(default_factory=lambda: {1: 4, 3: "shuffle"})

    @property
    def id(self) -> str:
        """The name of the archive and of the test."""
        return "-".join(filter(None, [self.name, self.settings]))

    def archive(self, format: int = FORMAT) -> Path:
        """The path of the archive in a format."""
        return FOLDER / f"format-{format}" / f"{self.id}.zip"

    def unpack(self, root: Path, format: int = FORMAT) -> None:
        """Unpacks the checkpoint below `root`, as if it had been written there."""
        with zipfile.ZipFile(self.archive(format)) as archive:
            archive.extractall(root)
        for file in [f for f in root.rglob("*") if f.is_file()]:
            data = file.read_bytes()
            if ROOT in data:
                file.write_bytes(data.replace(ROOT, str(root).encode()))

    def pack(self, root: Path) -> None:
        """Writes the archive of the run in `root`."""
        archive = self.archive()
        archive.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
            for file in sorted(f for f in (root / "checkpoint").rglob("*") if f.is_file()):
                # Checksums remain valid for files that name no directory.
                if not file.name.endswith(".crc"):
                    data = file.read_bytes().replace(str(root).encode(), ROOT)
                    # With a fixed time, the archive always has the same bytes.
                    info = zipfile.ZipInfo(str(file.relative_to(root)), (2026, 1, 1, 0, 0, 0))
                    out.writestr(info, data, zipfile.ZIP_DEFLATED)


def cases() -> list[Golden]:
    """A checkpoint of each operator, and of the settings that change how its state is stored."""
    from local.queries import QUERIES
    from local.settings import AVRO, IDS, JOIN_3, NO_CHANGELOG, ONE_EPOCH

    return [
        *(Golden(name, conf=ONE_EPOCH) for name in QUERIES),
        Golden("count", "ids", ONE_EPOCH | IDS),
        Golden("count", "under-way", ONE_EPOCH | IDS, {2: "slowly"}),
        Golden("count", "no-changelog", ONE_EPOCH | NO_CHANGELOG),
        Golden("join-full", "format-3", ONE_EPOCH | JOIN_3),
        Golden("tws-jvm", "ids", ONE_EPOCH | IDS),
        Golden("tws-jvm", "avro", ONE_EPOCH | AVRO),
    ]


def main() -> None:
    """Writes the archives that are missing."""
    python = HERE.parent / f".venv-{SPARK}/bin/python"
    missing = [case for case in cases() if not case.archive().exists()]
    scratch = Path(tempfile.mkdtemp(prefix="binshift-golden-"))
    writer = subprocess.Popen(
        [str(python), str(HERE / "cluster/older_spark.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    try:
        for case in missing:
            root = scratch / case.id
            what: dict[str, Any] = {"name": case.name, "root": str(root), "conf": case.conf}
            what |= {"epochs": list(EPOCHS), "targets": case.targets}
            writer.stdin.write(json.dumps(what) + "\n")
            writer.stdin.flush()
            if not any(line.startswith("done ") for line in iter(writer.stdout.readline, "")):
                raise SystemExit(f"Spark {SPARK} did not write {case.id}")
            layout = json.loads((root / "checkpoint/binshift/layout.json").read_text())
            assert layout["format"] == FORMAT, layout
            case.pack(root)
            sys.stdout.write(f"{case.archive()}: {case.archive().stat().st_size:,} bytes\n")
            sys.stdout.flush()
    finally:
        writer.stdin.close()
        writer.wait()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
