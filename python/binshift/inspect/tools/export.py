"""Writes record batches to files: Parquet, CSV, or a JSON object per line. Batch by batch, in flat memory."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from binshift.control.failures import reaching
from binshift.control.files import file_system_of
from binshift.control.uris import is_uri
from binshift.errors import ConfigurationError, impossible

__all__ = ["FORMATS", "export", "json_rows"]

#: The formats of files.
FORMATS = ("parquet", "csv", "json")

_MONTHS_DAYS_NANOS = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])


def export(reader: pa.RecordBatchReader, output: str | os.PathLike[str], format: str) -> int:
    """Writes batches to one file.

    Parquet keeps all types. CSV has a column for each column of the key and of the value; lists, maps and
    structs are JSON text there. In JSON, binary data are base64, and times and decimals are text.

    Parameters
    ----------
    reader : pyarrow.RecordBatchReader
    output : str or path
        A local path, which appears when the file is complete, or a URI that pyarrow knows.
    format : str
        "parquet", "csv" or "json".

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    ConfigurationError
        If the format is unknown, or no file system is known for the URI.
    StorageError
        If the file cannot be written.
    """
    if format not in FORMATS:
        raise impossible(ConfigurationError, "format", format, f"one of {', '.join(FORMATS)}")
    write = {"parquet": _parquet, "csv": _csv, "json": _json}[format]
    place = os.fspath(output)
    with reaching("write", place), _output(place) as sink:
        return write(reader, sink)


def json_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as values that JSON can represent."""
    columns = [_plain(c) for c in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


@contextlib.contextmanager
def _output(output: str) -> Iterator[IO[bytes]]:
    if is_uri(output):
        system, path = file_system_of(output)
        with system.open_output_stream(path, compression=None) as sink:
            yield cast(IO[bytes], sink)
        return
    target = Path(output)
    temporary = target.with_name(f".{target.name}.incomplete")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _parquet(reader: pa.RecordBatchReader, sink: IO[bytes]) -> int:
    schema = pa.schema([f.with_type(_storable(f.type)).with_nullable(True) for f in reader.schema])
    rows = 0
    with pa.parquet.ParquetWriter(sink, schema) as writer:
        for batch in reader:
            columns = [_stored(c) for c in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            rows += batch.num_rows
    return rows


def _storable(kind: pa.DataType) -> pa.DataType:
    """Converts a column for Parquet, which has no intervals of several parts, and no empty structs."""
    if kind == pa.month_day_nano_interval():
        return _MONTHS_DAYS_NANOS
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_storable(f.type)) for f in kind]) if kind.num_fields else pa.null()
    if pa.types.is_map(kind):
        return pa.map_(_storable(kind.key_type), _storable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_storable(kind.value_type))
    return kind


def _stored(column: pa.Array) -> pa.Array:
    kind = _storable(column.type)
    if kind == column.type:
        return column
    if pa.types.is_null(kind):
        return pa.nulls(len(column))
    # Rare, so it may go through Python.
    values = [_parts(v) for v in column.to_pylist()]
    return pa.array(values, kind)


def _parts(value: Any) -> Any:
    if isinstance(value, pa.MonthDayNano):
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    if isinstance(value, dict):
        return {k: _parts(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_parts(v) for v in value]
    if isinstance(value, tuple):
        return tuple(_parts(v) for v in value)
    return value


def _csv(reader: pa.RecordBatchReader, sink: IO[bytes]) -> int:
    rows = 0
    writer = None
    for batch in reader:
        flat = _flat(batch)
        writer = writer or pa.csv.CSVWriter(sink, flat.schema)
        writer.write_batch(flat)
        rows += batch.num_rows
    if writer is None:
        writer = pa.csv.CSVWriter(sink, _flat(pa.RecordBatch.from_pylist([], schema=reader.schema)).schema)
    writer.close()
    return rows


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A column for each column of a struct. Columns that are still nested become JSON text."""
    names, columns = [], []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_struct(column.type):
            names += [f"{name}.{f.name}" for f in column.type]
            columns += [_text(part) for part in column.flatten()]
        else:
            names.append(name)
            columns.append(_text(column))
    return pa.RecordBatch.from_arrays(columns, names=names)


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_nested(kind) or kind == pa.month_day_nano_interval():
        return pa.array(
            [None if v is None else json.dumps(v, ensure_ascii=False) for v in _plain(column)], pa.string()
        )
    if (
        pa.types.is_binary(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    ):
        return pa.array([None if v is None else str(v) for v in _plain(column)], pa.string())
    return column


def _json(reader: pa.RecordBatchReader, sink: IO[bytes]) -> int:
    rows = 0
    for batch in reader:
        for row in json_rows(batch):
            sink.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        rows += batch.num_rows
    return rows


def _plain(column: pa.Array) -> list[Any]:
    kind = column.type
    valid = column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        parts = [_plain(part) for part in column.flatten()]
        names = [f.name for f in kind]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)] or [{}] * len(column)
        return [r if ok else None for r, ok in zip(rows, valid, strict=True)]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = column.offsets.to_pylist()
        if pa.types.is_map(kind):
            keys, items = _plain(column.keys), _plain(column.items)
            values: list[Any] = [{"key": k, "value": v} for k, v in zip(keys, items, strict=True)]
        else:
            values = _plain(column.values)
        return [values[a:b] if ok else None for a, b, ok in zip(offsets, offsets[1:], valid, strict=False)]
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and kind != pa.month_day_nano_interval():
        # Converted by Arrow, because its range of years is larger than Python's.
        column = column.cast(pa.string())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    return [_simple(v) for v in column.to_pylist()]


def _simple(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _parts(value)
