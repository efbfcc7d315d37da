"""The decoders of Python for a checkpoint, each with valid examples and a way to feed it bytes.

Whatever the bytes are, feeding them gives a value or a `BinshiftError`.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from binshift.control.directory import ControlDir
from binshift.control.mailbox import Mailbox
from binshift.control.savepoints import Savepoints
from binshift.control.uris import shown
from binshift.errors import PlanError
from binshift.inspect.decoding.avro import avro_columns
from binshift.inspect.decoding.rows import RowDecoder
from binshift.inspect.decoding.schema import Encoder, Family, read_operator
from binshift.inspect.decoding.types import parse, parse_struct
from binshift.inspect.decoding.unsafe_row import Bytes, unsafe_columns
from binshift.inspect.decoding.values import row_values, split_list
from binshift.inspect.facts import Facts
from binshift.inspect.storage.changelog import Changelog
from binshift.inspect.storage.checksums import check_file
from binshift.inspect.storage.compression import decompressed
from binshift.inspect.storage.database import Database, Snapshot
from binshift.planning.plan import MigrationPlan
from checkpoints import Writer
from fuzz.held import Held
from golden import EPOCH, GOLDEN, OLD, OLD_FILES, PLAN, SAVEPOINT
from unit.test_inspect_files import CODECS, changelog, lz4
from unsafe_rows import row

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder.

    Parameters
    ----------
    what : str
        What is decoded.
    examples : list of bytes
        Valid ones.
    feed : callable
        Decodes bytes.
    cost : int
        About how many times longer than the quickest one it takes; it gets so many times fewer inputs.
    """

    what: str
    examples: list[bytes]
    feed: Callable[[bytes], object]
    cost: int = 1


@lru_cache(maxsize=1)
def written() -> dict[str, bytes]:
    """The files of a checkpoint with families, checksums of rows, ids, snapshots and changelogs."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        writer = Writer(root, random.Random(3), 8, has_row_checksums=True, has_commas=True, has_ids=True)
        for partitions, owners in ((2, [0, 1] * 4), (2, [0, 1] * 4), (3, [0, 1, 0, 1, 0, 1, 2, 1])):
            writer.epoch(partitions, owners)
        return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def of_checkpoint(path: str, read: Callable[[Held], object]) -> Callable[[bytes], object]:
    """Feeds the bytes as a file of the checkpoint."""
    return lambda data: read(Held({**written(), path: data}))


def golden(name: str) -> list[bytes]:
    return [((OLD if name in OLD_FILES else GOLDEN) / name).read_bytes()]


def golden_checkpoint(path: str, read: Callable[[Held], object]) -> Callable[[bytes], object]:
    files = {
        "offsets/4": b"v1\n{}\n",
        "commits/4": b"v1\n{}",
        f"binshift/routing/{EPOCH}": golden(f"routing/{EPOCH}")[0],
    }
    files["binshift/layout.json"] = golden("layout.json")[0]
    return lambda data: read(Held({**files, path: data}))


def routing(held: Held) -> object:
    directory, facts = ControlDir(held), Facts(held)
    return directory.routing(), directory.steps(), directory.steps_of("m-1"), facts.routing_entry(str(EPOCH))


def layout(held: Held) -> object:
    facts = Facts(held)
    return ControlDir(held).layout(), facts.bins, facts.first_binned_epoch, facts.operators(5)


def offsets(held: Held) -> object:
    facts = Facts(held)
    return ControlDir(held).provider(), facts.settings(3), facts.operators(3), list(facts.routing_problems())


def ids(held: Held) -> object:
    return Facts(held).ids.of(0, 1, "default", 3)


def answer(held: Held) -> object:
    with contextlib.suppress(PlanError):  # that is the answer of an example
        return Mailbox(ControlDir(held)).answer("x", 0)
    return None


EVERYTHING: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": n, "type": t, "nullable": True}
        for n, t in {
            "l": "long", "i": "integer", "b": "boolean", "d": "double", "s": "string", "x": "binary",
            "small": "decimal(12,3)", "large": "decimal(30,5)", "iv": "interval", "v": "variant",
            "a": {"type": "array", "elementType": "integer", "containsNull": True},
            "m": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            "st": {"type": "struct", "fields": [{"name": "y", "type": "string", "nullable": True}]},
        }.items()
    ],
}  # fmt: skip
ROW = parse(EVERYTHING)
AVRO = parse({**EVERYTHING, "fields": [f for f in EVERYTHING["fields"] if f["name"] not in ("iv", "v")]})
VALUES: dict[str, Any] = dict.fromkeys(f.name for f in ROW.fields) | {
    "l": 5, "s": "text", "x": b"bytes", "a": [1, None, 3], "m": [("a", 1), ("b", None)], "st": {"y": "z"},
    "iv": (1, 2, 3), "v": {"value": b"vv", "metadata": b"m"}, "b": True, "d": 1.5, "i": 7,
}  # fmt: skip


def unsafe(data: bytes) -> object:
    columns = unsafe_columns(Bytes(data), ROW, np.array([0]), np.array([len(data)]))
    return [c.to_pylist() for c in columns]


def zigzag(n: int) -> bytes:
    n, out = (n << 1) ^ (n >> 63), b""
    while n > 0x7F:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def in_avro() -> bytes:
    text = zigzag(4) + b"text"
    return b"".join([
        b"\2" + zigzag(5), b"\2" + zigzag(7), b"\2\1", b"\2" + struct.pack("<d", 1.5), b"\2" + text,
        b"\2" + text, b"\2" + bytes(6), b"\2" + bytes(13), b"\2" + zigzag(2) + zigzag(1) + zigzag(3) + b"\0",
        b"\2" + zigzag(1) + text + zigzag(9) + b"\0", b"\2\2" + text,
    ])  # fmt: skip


def columns(**types: str) -> Any:
    return parse(
        {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True} for n, t in types.items()]}
    )


KEY = columns(k="long", d="double", t="long")


def keys(encoder: Encoder, encoding: str = "unsaferow") -> Callable[[bytes], object]:
    family = Family("f", key=KEY, value=ROW, encoder=encoder)
    return lambda data: RowDecoder(family, encoding).keys([data]).to_pylist()


def stored_keys() -> dict[str, tuple[Encoder, bytes]]:
    """An encoder of each kind, with a key of it."""
    long, both = b"\0" + row(columns(k="long"), {"k": 9}), {"k": 9, "d": 1.0}
    rest = b"\0" + row(columns(d="double", t="long"), {"d": 1.0, "t": 3})
    two, time = b"\0" + row(columns(k="long", d="double"), both), struct.pack(">Q", 1 << 63)
    ordered = b"\0" + row(columns(k="binary", d="binary"), {"k": b"\1" + bytes(8), "d": b"\0" + bytes(8)})
    last = b"\0" + row(columns(t="long"), {"t": 3})
    size = struct.Struct("<i").pack
    return {
        "PrefixKeyScan": (Encoder("PrefixKeyScan", prefix=1), size(len(long)) + long + rest),
        "RangeKeyScan": (Encoder("RangeKeyScan", ordering=(0, 1)), size(len(ordered)) + ordered + last),
        "TimestampAsPrefix": (Encoder("TimestampAsPrefix"), time + two),
        "TimestampAsPostfix": (Encoder("TimestampAsPostfix"), two + time),
    }


def pieces(data: bytes) -> object:
    return sum(len(p) for p in decompressed(io.BytesIO(data), "stream"))


def records(data: bytes) -> object:
    """Decodes the contents of blocks, so that their checksums don't reveal the damage."""
    log = Changelog(io.BytesIO(lz4(data, 1 << 12)), "log")
    return log.lineage, list(log.records())


def listed(data: bytes) -> object:
    return row_values(data, b",")


def split(data: bytes) -> object:
    return split_list(data, b",")


def schema(held: Held) -> object:
    return read_operator(held, 0, 2)


HADOOP_SUM = "state/0/0/.1.zip.crc"


def checksum(held: Held) -> object:
    return check_file(held, "state/0/0", "1.zip", held.sizes("state/0/0"))


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        inner = Path(folder) / "inner"
        inner.mkdir()
        yield inner
        beside = sorted(p.name for p in Path(folder).iterdir())
        assert beside in (["inner"], []), f"it wrote beside its directory: {beside}"


def snapshot(held: Held, path: str) -> object:
    with scratch() as folder:
        found = Snapshot(held, path, folder)
        database = Database(folder, found, b",", is_read_only=True)
        try:
            return list(database.rows())
        finally:
            database.close()


def metadata(data: bytes) -> object:
    """The metadata alone, in an archive that is whole."""
    path, files = next(iter(snapshots().items())), written()
    with zipped(files[path[0]], data) as archive:
        return snapshot(Held({**files, path[0]: archive}), path[0])


@contextlib.contextmanager
def zipped(archive: bytes, metadata: bytes) -> Iterator[bytes]:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, metadata if name == "metadata" else old.read(name))
    yield out.getvalue()


def metadata_of(archive: bytes) -> bytes:
    return zipfile.ZipFile(io.BytesIO(archive)).read("metadata")


def snapshots() -> dict[str, bytes]:
    return {n: d for n, d in written().items() if n.endswith(".zip")}


def changelogs() -> list[bytes]:
    return [
        changelog(f, [(1, b"key", b"value"), (0x10, b"k", b""), (1, b"", b"v" * 90)], [(1, "a"), (2, "b")])
        for f in (1, 2, 3, 4)
    ]


def targets() -> dict[str, Target]:
    """Made when first asked for, because the examples of some are written to disk."""
    files = written()
    zip_path = next(iter(snapshots()))
    one = {"state/0/0/1.zip": bytes(20)}
    spark_sum = json.dumps({"algorithm": "CRC32C", "value": 5, "mainFileSize": 20}).encode()
    hadoop_sum = b"crc\0" + (512).to_bytes(4, "big") + bytes(4)
    schema_path, operator_path = "state/0/_stateSchema/default/0_a", "state/0/_metadata/v2/0"
    return {
        "routing": Target(
            "an entry of the routing log",
            golden(f"routing/{EPOCH}"),
            golden_checkpoint(f"binshift/routing/{EPOCH}", routing),
        ),
        "layout": Target(
            "`layout.json`",
            [*golden("layout.json"), files["binshift/layout.json"]],
            golden_checkpoint("binshift/layout.json", layout),
        ),
        "migration": Target(
            "the file of a migration",
            golden(PLAN),
            golden_checkpoint("binshift/plans/m-1.json", lambda h: ControlDir(h).migration()),
        ),
        "savepoint": Target(
            "the file of a savepoint",
            golden(SAVEPOINT),
            golden_checkpoint(f"binshift/{SAVEPOINT}", lambda h: [s.size for s in Savepoints(h).all()]),
        ),
        "plan": Target(
            "the JSON of a plan",
            [json.dumps(json.loads(golden(PLAN)[0])["plan"]).encode()],
            lambda d: MigrationPlan.from_json(d.decode(errors="surrogateescape")),
        ),
        "answer": Target(
            "an answer to a request",
            golden("answers/refused.json") + golden("answers/submit.json"),
            golden_checkpoint("binshift/answers/x.json", answer),
        ),
        "offsets": Target("Spark's log of offsets", [files["offsets/2"]], of_checkpoint("offsets/2", offsets)),
        "ids": Target(
            "checkpoint ids, in Spark's log of commits", [files["commits/2"]], of_checkpoint("commits/2", ids)
        ),
        "ids kept": Target(
            "checkpoint ids, in `binshift/ids`",
            [files["binshift/ids/2"]],
            lambda d: ids(Held({**{n: f for n, f in files.items() if n != "commits/2"}, "binshift/ids/3": d})),
        ),
        "operator": Target(
            "metadata of an operator", [files[operator_path]], of_checkpoint(operator_path, schema)
        ),
        "schema": Target("schema of a store", [files[schema_path]], of_checkpoint(schema_path, schema), 2),
        "type": Target(
            "a type in a schema",
            [json.dumps(EVERYTHING).encode()],
            lambda d: parse_struct(d.decode(errors="surrogateescape")),
            2,
        ),
        "streams": Target(
            "LZ4, Snappy and zstd streams", [c(b"content of a file " * 30) for c in CODECS.values()], pieces
        ),
        "changelog": Target("a changelog, formats 1 to 4", changelogs(), records, 2),
        "unsafe row": Target(
            "an UnsafeRow of all types", [row(ROW, VALUES), row(ROW, dict.fromkeys(VALUES))], unsafe, 4
        ),
        "avro": Target("a row in Avro", [in_avro()], lambda d: avro_columns([d], AVRO)),
        **{
            f"key {name}": Target(f"a key, {name}", [key], keys(encoder), 4)
            for name, (encoder, key) in stored_keys().items()
        },
        "row checksums": Target(
            "values with checksums of rows",
            [struct.pack("<Ii", 1, 3) + b"abc," + struct.pack("<Ii", 1, 1) + b"a"],
            listed,
        ),
        "list": Target(
            "a list of values", [struct.pack("<i", 3) + b"abc," + struct.pack("<i", 1) + b"a"], split
        ),
        "checksum file of Spark": Target(
            "a checksum file of Spark", [spark_sum], lambda d: checksum(Held({**one, "state/0/0/1.zip.crc": d}))
        ),
        "checksum file of Hadoop": Target(
            "a checksum file of Hadoop",
            [hadoop_sum],
            lambda d: checksum(Held({**one, HADOOP_SUM: d})),
        ),
        "snapshot": Target(
            "a snapshot's archive",
            [files[zip_path]],
            of_checkpoint(zip_path, lambda h: snapshot(h, zip_path)),
            40,
        ),
        "snapshot metadata": Target("a snapshot's metadata", [metadata_of(files[zip_path])], metadata, 40),
        "uri": Target(
            "a URI that is shown",
            [b"s3://user:secret@bucket/path?region=x&token=y"],
            lambda d: shown(d.decode(errors="surrogateescape")),
        ),
    }


TARGETS = targets()
