"""Writes checkpoints in the layout of Spark and binshift, file by file, and keeps a model of their content.

The state is that of a join of format 4, say: families with the bin in front and behind, one with single
values. `keys` has the keys of each bin; a test that gives a bin those of another one damages the checkpoint.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from rocksdict import Options, Rdict

from binshift.inspect.decoding import types
from unsafe_rows import row

STORE = "spark.sql.streaming.stateStore."
LONG = {"type": "long", "nullable": True, "metadata": {}}
VALUE = {"type": "struct", "fields": [{"name": "n", **LONG}]}
FAMILIES = {
    "count": "NoPrefixKeyStateEncoderSpec",
    "left-keyWithTsToValues": "TimestampAsPostfixKeyStateEncoderSpec",
    "left-tsWithKey": "TimestampAsPrefixKeyStateEncoderSpec",
}
MASK = 0xFFFFFFFF
BEHIND = ("left-tsWithKey",)
VALUE_TYPE = types.parse(VALUE)
KEY_TYPE = types.parse({"type": "struct", "fields": [{"name": "k", **LONG}]})

#: Partition -> (family, bin, key, time) -> values.
State = dict[int, dict[tuple[str, int, int, int], list[int]]]


def key_schema(family: str) -> dict[str, Any]:
    names = ["k"] if family == "count" else ["k", "__event_time"]
    return {"type": "struct", "fields": [{"name": n, **LONG} for n in names]}


def crc32c(data: bytes) -> int:
    """CRC-32C by its definition, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def home(k: int, bins: int) -> int:
    """The bin of a key that is one long, by the definition of Spark's Murmur3."""

    def turned(x: int, by: int) -> int:
        return (x << by | x >> 32 - by) & MASK

    hash = 42
    for word in struct.unpack("<II", struct.pack("<q", k)):
        hash ^= turned(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
        hash = (turned(hash, 13) * 5 + 0xE6546B64) & MASK
    hash ^= 8
    hash = (hash ^ hash >> 16) * 0x85EBCA6B & MASK
    hash = (hash ^ hash >> 13) * 0xC2B2AE35 & MASK
    hash ^= hash >> 16
    return (hash - (hash >> 31 << 32)) % bins


@dataclass
class Writer:
    """Runs epochs of an invented query; `versions` has the state after each."""

    root: Path
    rng: random.Random
    bins: int
    has_row_checksums: bool
    has_commas: bool
    has_ids: bool
    state: State = field(default_factory=dict)
    versions: list[State] = field(default_factory=list)
    tables: list[list[int]] = field(default_factory=list)
    numbers: dict[int, dict[str, int]] = field(default_factory=dict)
    lineage: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    keys: list[list[int]] = field(default_factory=list)
    previous: int = -1

    def __post_init__(self) -> None:
        self.keys = [[k for k in range(-40, 40) if home(k, self.bins) == b][:4] for b in range(self.bins)]
        self.write_json("binshift/layout.json", {
            "format": 1, "bins": self.bins, "requested_bins": 5, "hash": "murmur3-42", "spark_version": "4.3.0",
            "operators": [{"id": 0, "name": "symmetricHashJoin", "storage": "binned"}],
        })  # fmt: skip
        chunk = self.chunk
        schema = b"\0\2v3" + struct.pack(">i", len(FAMILIES))
        for name, spec in FAMILIES.items():
            schema += self.utf(name) + b"\0\0" + chunk(key_schema(name)) + b"\0\0" + chunk(VALUE)
            schema += chunk({"keyStateEncoderType": spec}) + chunk({})
        self.write("state/0/_stateSchema/default/0_a", schema)
        info = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1,
                "stateSchemaFilePaths": ["file:/elsewhere/state/0/_stateSchema/default/0_a"]}  # fmt: skip
        operator = {"operatorId": 0, "operatorName": "symmetricHashJoin"}
        metadata = {"operatorInfo": operator, "stateStoreInfo": [info], "operatorPropertiesJson": "{}"}
        self.write("state/0/_metadata/v2/0", b"v2\n" + json.dumps(metadata).encode())

    def epoch(self, partitions: int, owners: list[int]) -> None:
        """Runs an epoch under a table; bins move before the epoch's changes."""
        epoch = len(self.versions)
        before = self.tables[-1] if self.tables else None
        if before != owners or len(self.state) != partitions:
            self.write_json(f"binshift/routing/{epoch}", {"format": 1, "epoch": epoch, "partitions": partitions,
                            "assignment": owners, "written_at": "1970-01-01T00:00:00Z",
                            "previous": self.previous})  # fmt: skip
            self.previous = epoch
            self.keep_ids(epoch)
        rows = {k: v for part in self.state.values() for k, v in part.items()}
        new = set(range(partitions)) - set(self.state)
        self.state = {p: {k: list(v) for k, v in rows.items() if owners[k[1]] == p} for p in range(partitions)}
        self.tables.append(owners)
        for p in sorted(new):
            order = self.rng.sample(sorted(FAMILIES), len(FAMILIES))
            self.numbers[p] = {name: i for i, name in enumerate(order)}
            self.lineage[p] = []
        ids = [self.commit(p, epoch + 1, p in new) for p in range(partitions)]
        self.versions.append({p: {k: list(v) for k, v in part.items()} for p, part in self.state.items()})
        conf = {STORE + "providerClass": "binshift.StateStoreProvider",
                "spark.sql.shuffle.partitions": str(partitions),
                STORE + "rowChecksum.enabled": str(self.has_row_checksums).lower(),
                STORE + "rocksdb.mergeOperatorVersion": "1" if self.has_commas else "2"}  # fmt: skip
        self.write(f"offsets/{epoch}", b"v1\n" + json.dumps({"conf": conf}).encode() + b"\n{}")
        unique = {"stateUniqueIds": {"0": [[i] for i in ids]}} if self.has_ids else {}
        self.write(f"commits/{epoch}", b"v1\n" + json.dumps({"nextBatchWatermarkMs": 0, **unique}).encode())

    def keep_ids(self, epoch: int) -> None:
        commit = self.root / f"commits/{epoch - 1}"
        if self.has_ids and commit.exists():
            kept = json.loads(commit.read_text().split("\n")[1])["stateUniqueIds"]
            self.write_json(f"binshift/ids/{epoch}", kept)

    def commit(self, partition: int, version: int, is_new: bool) -> str:
        """Writes changes, and sometimes a snapshot; a new partition has a snapshot and no changelog."""
        records = self.change(partition)
        id = f"id-{partition}-{version}"
        name = f"{version}_{id}" if self.has_ids else str(version)
        if not is_new:
            head = b"\0\2v4" + self.utf(json.dumps(self.lineage[partition])) if self.has_ids else b"\0\2v2"
            data = pa.compress(head + records + b"\0", "zstd", asbytes=True)
            self.write(f"state/0/{partition}/{name}.changelog", data)
        if is_new or self.rng.random() < 0.3:
            self.snapshot(partition, name)
            self.lineage[partition] = []
        self.lineage[partition].append({"version": version, "checkpointUniqueId": id})
        return id

    def change(self, partition: int) -> bytes:
        """Random puts, appends and deletions of rows of the partition's bins, as changelog records."""
        rows = self.state[partition]
        owned = [b for b, owner in enumerate(self.tables[-1]) if owner == partition]
        out = b""
        for _ in range(self.rng.randrange(7) if owned else 0):
            family = self.rng.choice(sorted(FAMILIES))
            bin = self.rng.choice(owned)
            time = 0 if family == "count" else self.rng.randrange(-2, 2)
            place = (family, bin, self.rng.choice(self.keys[bin]), time)
            key = self.key(partition, place)
            kind = self.rng.choice([0x01, 0x10] if family == "count" else [0x01, 0x10, 0x11])
            if kind == 0x10:
                rows.pop(place, None)
                stored = struct.pack("<I", crc32c(key)) + key if self.has_row_checksums else key
                out += b"\x10" + struct.pack(">i", len(stored)) + stored + struct.pack(">i", -1)
                continue
            value = self.rng.randrange(100)
            rows[place] = [*rows.get(place, []), value] if kind == 0x11 else [value]
            stored = self.values(family, key, [value])
            out += bytes([kind]) + struct.pack(">i", len(key)) + key + struct.pack(">i", len(stored)) + stored
        return out

    def key(self, partition: int, place: tuple[str, int, int, int]) -> bytes:
        family, bin, k, time = place
        body = b"\0" + row(KEY_TYPE, {"k": k})
        stamp = struct.pack(">Q", time + (1 << 63))
        if family == "left-keyWithTsToValues":
            body += stamp
        elif family == "left-tsWithKey":
            body = stamp + body
        number = struct.pack("<h", self.numbers[partition][family])
        where = struct.pack(">H", bin)
        return number + body + where if family in BEHIND else number + where + body

    def values(self, family: str, key: bytes, values: list[int]) -> bytes:
        out = []
        for value in values:
            stored = b"\0" + row(VALUE_TYPE, {"n": value})
            if family != "count":
                stored = struct.pack("<i", len(stored)) + stored
            if self.has_row_checksums:
                stored = struct.pack("<Ii", crc32c(key + stored), len(stored)) + stored
            out.append(stored)
        return (b"," if self.has_commas else b"").join(out)

    def snapshot(self, partition: int, name: str) -> None:
        """Writes the rows as a RocksDB: data files are separate, and its other files are in an archive."""
        folder = self.root / "next"
        database = Rdict(str(folder), Options(raw_mode=True))
        for place, values in self.state[partition].items():
            key = self.key(partition, place)
            database.put(key, self.values(place[0], key, values))
        database.flush()
        database.close()
        (folder / "rocksdict-config.json").unlink()
        files = []
        with zipfile.ZipFile(self.root / "next.zip", "w") as archive:
            for path in sorted(folder.iterdir()):
                if path.suffix == ".sst":
                    remote = f"{path.stem}-{partition}-{name}.sst"
                    self.write(f"state/0/{partition}/SSTs/{remote}", path.read_bytes())
                    size = path.stat().st_size
                    files.append({"localFileName": path.name, "dfsSstFileName": remote, "sizeBytes": size})
                elif path.is_file() and not path.name.startswith(("LOG", "LOCK")):
                    archive.write(path, path.name)
            metadata = {"sstFiles": files, "numKeys": len(self.state[partition]), "numInternalKeys": 0,
                        "columnFamilyMapping": self.numbers[partition], "maxColumnFamilyId": 2}  # fmt: skip
            archive.writestr("metadata", "v1\n" + json.dumps(metadata))
        shutil.rmtree(folder)
        target = self.root / f"state/0/{partition}/{name}.zip"
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.root / "next.zip").replace(target)

    @staticmethod
    def utf(text: str) -> bytes:
        return struct.pack(">H", len(text)) + text.encode()

    def chunk(self, value: Any) -> bytes:
        return struct.pack(">i", 1) + self.utf(json.dumps(value))

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, json.dumps(value).encode())

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
