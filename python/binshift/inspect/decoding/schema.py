"""Reads an operator's metadata and state schema files: its stores, their families, and their columns.

```
state/<operator>/_metadata/metadata            format 1: names of stores, columns of a key's prefix
state/<operator>/_metadata/v2/<batch>          format 2: the same, and the schema files
state/<operator>/0/<store>/_metadata/schema    format 1: key and value of the store's only family
state/<operator>/_stateSchema/<store>/<file>   format 2: key, value and encoder of each family
```
"""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from binshift.control.damage import plain_name, understood
from binshift.control.files import Files, parse_json
from binshift.display import brief
from binshift.errors import StateFormatError
from binshift.inspect.decoding.types import SparkType, parse_struct

__all__ = ["DEFAULT", "Encoder", "Family", "Operator", "Store", "is_read_in_order", "read_operator"]

#: Spark's name of the only store of an operator, and of the only family of a store.
DEFAULT = "default"

_TIMESTAMP_ENCODERS = ("TimestampAsPrefixKeyStateEncoderSpec", "TimestampAsPostfixKeyStateEncoderSpec")


@dataclass(frozen=True, slots=True)
class Encoder:
    """How a family's keys are encoded as bytes.

    Parameters
    ----------
    name : str
        "NoPrefix", "PrefixKeyScan", "RangeKeyScan", "TimestampAsPrefix" or "TimestampAsPostfix".
    prefix : int
        Number of columns of the prefix.
    ordering : tuple of int
        Columns by which keys are ordered.
    """

    name: str = "NoPrefix"
    _: KW_ONLY
    prefix: int = 0
    ordering: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Family:
    """A column family: rows of one form.

    Parameters
    ----------
    name : str
        Spark's name for it: "default" if it is the only one of the store.
    key, value : SparkType
        Structs.
    encoder : Encoder
    is_multi_valued : bool
        Whether a key has a list of values.
    values : tuple of (int, SparkType)
        All schemas with which values may have been written, by id (only for Avro).
    """

    name: str
    _: KW_ONLY
    key: SparkType
    value: SparkType
    encoder: Encoder = Encoder()
    is_multi_valued: bool = False
    values: tuple[tuple[int, SparkType], ...] = ()

    def __repr__(self) -> str:
        columns = f"{len(self.key.fields)} columns of keys and {len(self.value.fields)} of values"
        return brief(self, f"{self.name}, {columns}")


@dataclass(frozen=True, slots=True, repr=False)
class Store:
    """A store of an operator: a database in each partition.

    Parameters
    ----------
    name : str
    families : tuple of Family
    has_families : bool
        Whether stored keys begin with the number of their family.
    """

    name: str
    _: KW_ONLY
    families: tuple[Family, ...]
    has_families: bool

    def family(self, name: str) -> Family | None:
        """The family of that name."""
        return next((f for f in self.families if f.name == name), None)

    def directory(self, operator: int, *, partition: int) -> str:
        """The store's files in the checkpoint."""
        base = f"state/{operator}/{partition}"
        return base if self.name == DEFAULT else f"{base}/{self.name}"

    def __repr__(self) -> str:
        return brief(self, f"{self.name}, {len(self.families)} families")


@dataclass(frozen=True, slots=True, repr=False)
class Operator:
    """A stateful operator.

    Parameters
    ----------
    id : int
    name : str
        The name that the query's progress reports.
    stores : tuple of Store
    storage : str
        "binned", "single" (all in partition 0), "plain", or "stock" for a checkpoint without bins.
    """

    id: int
    _: KW_ONLY
    name: str
    stores: tuple[Store, ...]
    storage: str = "stock"

    @property
    def is_binned(self) -> bool:
        """True if keys carry their bins."""
        return self.storage == "binned"

    def with_storage(self, storage: str) -> Operator:
        """The same operator, stored in another way."""
        return replace(self, storage=storage)

    def __repr__(self) -> str:
        stores = ", ".join(store.name for store in self.stores)
        return brief(self, f"{self.id}, {self.name}, {self.storage}, stores {stores}")


def is_read_in_order(family: str) -> bool:
    """True if the bin comes behind the keys of a family. Must agree with `ColumnFamily.isReadInOrder`."""
    return (
        family.startswith("$ttl_")
        or (family.startswith("$") and family.endswith("_timestampToKey"))
        or family in ("left-tsWithKey", "right-tsWithKey")
    )


def read_operator(files: Files, operator: int, batch: int) -> Operator:
    """An operator as it was at a batch.

    Raises
    ------
    StateFormatError
        If its metadata or its schema is missing or damaged.
    """
    base = f"state/{operator}/_metadata"
    batches = [b for b in files.numbers(f"{base}/v2") if b <= batch]
    path = f"{base}/v2/{batches[-1]}" if batches else f"{base}/metadata"
    text = files.read(path)
    version, _, body = text.partition(b"\n")
    metadata = parse_json(body, path)
    with understood(path):
        name = str(metadata["operatorInfo"]["operatorName"])
        infos = metadata["stateStoreInfo"]
        if version == b"v1":
            stores = [_store_of_v1(files, operator, i) for i in infos]
        elif version == b"v2":
            lists = _list_variables(metadata.get("operatorPropertiesJson") or "{}")
            stores = [_store_of_v2(files, operator, i, lists) for i in infos]
        else:
            raise StateFormatError(f"{path} has the unknown format {version!r:.100}; use a newer binshift")
    return Operator(operator, name=name, stores=tuple(stores))


def _store_of_v1(files: Files, operator: int, info: dict[str, Any]) -> Store:
    store = Store(plain_name(info["storeName"]), families=(), has_families=False)
    path = f"{store.directory(operator, partition=0)}/_metadata/schema"
    reader = _JavaReader(files.read(path), path)
    version = reader.utf()
    if version == "v1":
        key, value = reader.utf(), reader.utf()
    elif version == "v2":
        key, value = reader.chunks(), reader.chunks()
    else:
        raise StateFormatError(f"{path} has the unknown format {version!r}; use a newer binshift")
    prefix = int(info["numColsPrefixKey"])
    encoder = Encoder("PrefixKeyScan", prefix=prefix) if prefix else Encoder()
    return replace(
        store, families=(Family(DEFAULT, key=parse_struct(key), value=parse_struct(value), encoder=encoder),)
    )


def _store_of_v2(files: Files, operator: int, info: dict[str, Any], lists: set[str]) -> Store:
    # The paths say where the checkpoint was when it was written. It may have been moved since.
    store = plain_name(info["storeName"])
    names = [plain_name(str(p).rsplit("/", 1)[-1]) for p in info["stateSchemaFilePaths"]]
    families: dict[str, Family] = {}
    values: dict[str, dict[int, SparkType]] = {}
    for name in names:
        path = f"state/{operator}/_stateSchema/{store}/{name}"
        latest = {}
        for id, family in _families_of_v3(files.read(path), path):
            multi = family.name in lists or family.name.endswith(("-keyWithTsToValues", "-tsWithKey"))
            latest[family.name] = replace(family, is_multi_valued=multi)
            values.setdefault(family.name, {})[id] = family.value
        families = latest
    done = (
        replace(f, values=tuple(sorted(values[n].items(), key=lambda v: v[0]))) for n, f in families.items()
    )
    return Store(store, families=tuple(done), has_families=True)


def _families_of_v3(data: bytes, path: str) -> list[tuple[int, Family]]:
    """Families with the ids of their value schemas."""
    reader = _JavaReader(data, path)
    version = reader.utf()
    if version not in ("v3", "v4"):
        raise StateFormatError(f"{path} has the unknown format {version!r}; use a newer binshift")
    out = []
    for _ in range(reader.number()):
        name = reader.utf()
        reader.short()
        key = parse_struct(reader.chunks())
        id = reader.short()
        value = parse_struct(reader.chunks())
        encoder = _encoder(parse_json(reader.chunks().encode(), path), path)
        reader.chunks()
        out.append((id, Family(name, key=key, value=value, encoder=encoder)))
    return out


def _encoder(spec: dict[str, Any], path: str) -> Encoder:
    name = str(spec.get("keyStateEncoderType"))
    if name == "NoPrefixKeyStateEncoderSpec":
        return Encoder()
    if name == "PrefixKeyScanStateEncoderSpec":
        return Encoder("PrefixKeyScan", prefix=int(spec["numColsPrefixKey"]))
    if name == "RangeKeyScanStateEncoderSpec":
        return Encoder("RangeKeyScan", ordering=tuple(int(i) for i in spec["orderingOrdinals"]))
    if name in _TIMESTAMP_ENCODERS:
        return Encoder(name.removesuffix("KeyStateEncoderSpec"))
    raise StateFormatError(f"{path} names the unknown key encoder {name}; use a newer binshift")


def _list_variables(properties: str) -> set[str]:
    variables = json.loads(properties).get("stateVariables", [])
    return {v["stateName"] for v in variables if v["stateVariableType"] == "ListState"}


class _JavaReader:
    """Reads the output of Java's DataOutputStream."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._path, self._at = data, path, 0

    def short(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def number(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def utf(self) -> str:
        """Reads Java's modified UTF-8: characters beyond 16 bits are two surrogates, and NUL has two bytes."""
        data = self._take(int.from_bytes(self._take(2), "big")).replace(b"\xc0\x80", b"\0")
        try:
            return data.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeError as error:
            raise StateFormatError(f"{self._path} is damaged ({error}); restore it from a copy") from error

    def chunks(self) -> str:
        """Reads text that is stored in pieces of at most 64 KiB."""
        return "".join(self.utf() for _ in range(self.number()))

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise StateFormatError(f"{self._path} is damaged: it ends too early; restore it from a copy")
        self._at += size
        return data
