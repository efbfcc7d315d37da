"""Feeds the JVM's decoders: Python makes inputs, and the JVM decodes some thousands at a time."""

from __future__ import annotations

import json
import random
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

from fuzz.feeding import Outcome
from fuzz.mutating import Mutator
from golden import EPOCH, FILES, GOLDEN, checkpoint

__all__ = ["TARGETS", "feed"]

_BATCH = 2000
#: Targets of the JVM, and their approximate cost relative to the fastest; some write and read files.
TARGETS = {
    "shipment": 1,
    "shipment with its checksum": 1,
    "marker": 1,
    "manifest": 1,
    "manifest with its checksums": 1,
    "key": 1,
    **{name: 20 for name in FILES if not name.startswith("ids/")},
    "commits": 20,
}


def feed(jvm: Any, name: str, inputs: int, *, seed: int = 1) -> Outcome:
    """Feeds a number of inputs.

    Parameters
    ----------
    jvm : object
        `TestFuzz`, through py4j.
    name : str
        The target.
    inputs, seed : int
    """
    mutator = Mutator(_examples(jvm, name), zlib.crc32(name.encode()) ^ seed)
    outcome = Outcome()
    with _folder() as folder:
        for start in range(0, inputs, _BATCH):
            batch = [mutator.input() for _ in range(min(_BATCH, inputs - start))]
            packed = b"".join(struct.pack(">i", len(data)) + data for data in batch)
            told = json.loads(jvm.feed(name, str(folder), bytearray(packed)))
            outcome.decoded += told["decoded"]
            outcome.refused.update(told["refused"])
            outcome.failures += [(batch[f["index"]], f["trace"]) for f in told["failures"]]
            outcome.slowest_s = max(outcome.slowest_s, told["slowest_ms"] / 1000)
    return outcome


def _examples(jvm: Any, name: str) -> list[bytes]:
    if name.startswith("shipment with") or name == "shipment":
        return [bytes(jvm.chunk())]
    if name.startswith("manifest"):
        return [_manifest()]
    if name == "marker":
        return [bytes(jvm.marker())]
    if name == "key":
        return [b"\0\1key", b"\0", b"", random.Random(1).randbytes(40)]
    if name == "commits":
        return [
            b"v2\n" + json.dumps({"stateUniqueIds": json.loads((GOLDEN / f"ids/{EPOCH}").read_text())}).encode()
        ]
    return [(GOLDEN / name).read_bytes()]


def _manifest() -> bytes:
    """The MANIFEST of a RocksDB database with some files."""
    with tempfile.TemporaryDirectory() as folder:
        database = Rdict(folder, Options(raw_mode=True))
        for i in range(3):
            database.put(b"key%d" % i, b"value")
            database.flush()
        database.close()
        return next(Path(folder).glob("MANIFEST-*")).read_bytes()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-jvm-"))
    try:
        yield checkpoint(folder)
    finally:
        shutil.rmtree(folder)
