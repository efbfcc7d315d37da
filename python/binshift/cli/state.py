"""`binshift state`, which reads a checkpoint's state without a JVM."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

import binshift.inspect as reading
from binshift.cli.output import checkpoint, combined, example, print_json, print_table
from binshift.control.uris import is_uri, shown, within
from binshift.errors import ConfigurationError, StateFormatError, impossible
from binshift.inspect import Checkpoint, Source
from binshift.inspect.decoding.types import TypeKind
from binshift.inspect.lookup import impossible_key
from binshift.inspect.tools.diff import Side
from binshift.inspect.tools.diff import diff as differences
from binshift.inspect.tools.export import FORMATS, json_rows
from binshift.inspect.tools.export import export as write
from binshift.inspect.tools.stats import stats as count

__all__ = ["COMMANDS"]

_SHOWN = 10


#: The options that select what is read.
_choice = combined(
    click.option("--operator", type=int, metavar="N", help="Stateful operator, by its id."),
    click.option("--store", metavar="NAME", help="Store of the operator; joins have several."),
    click.option("--family", metavar="NAME", help="Column family: a state variable, or an index."),
)
_version = click.option(
    "--version", type=int, metavar="V", help="The state after batch V - 1; by default the newest."
)
_scratch = click.option("--scratch", type=click.Path(file_okay=False), help="Directory for temporary files.")
_places = combined(
    click.option("--bin", "bins", type=int, multiple=True, metavar="B", help="This bin only; repeatable."),
    click.option("--partition", "partitions", type=int, multiple=True, metavar="P", help="Repeatable."),
)
_head = click.option(
    "--head",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    metavar="N",
    help="The first N rows.",
)
_lines = click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
_FAILS = (ConfigurationError, StateFormatError)


@click.group(
    epilog=example("binshift state show checkpoint", "binshift state get checkpoint key7", errors=_FAILS)
)
def state() -> None:
    """Read the state of a checkpoint, without a JVM.

    The checkpoint may be binshift's, or of Spark's RocksDB provider; its query may be running. Version V of
    the state is what batch V - 1 committed.
    """


@state.command(epilog=example("binshift state show checkpoint", errors=_FAILS))
@checkpoint
@_version
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show(checkpoint: str, version: int | None, as_json: bool) -> None:
    """List versions, operators and families."""
    with reading.open(checkpoint) as opened:
        _show_overview(opened, version, as_json=as_json)


@state.command(
    epilog=example(
        "binshift state get checkpoint key7 --json",
        "binshift state get checkpoint --bin 3 --head 5",
        errors=_FAILS,
    )
)
@checkpoint
@click.argument("key", required=False)
@_choice
@_places
@_version
@_head
@_lines
@_scratch
def get(checkpoint: str, key: str | None, head: int, as_json: bool, **options: Any) -> None:
    """Print the rows of KEY, or the first rows.

    KEY is a value, or a JSON object of columns.
    """
    with reading.open(checkpoint, scratch=options["scratch"]) as opened:
        source = _source(opened, options)
        if key is None:
            rows = _scan(opened, source, options)
        elif options["bins"] or options["partitions"]:
            raise click.UsageError("KEY says where it is; leave --bin and --partition out.")
        else:
            rows = opened.lookup(_key(key, source), source=source).to_reader()
        _print(rows, head, as_json=as_json)


@state.command(epilog=example("binshift state stats checkpoint --family count", errors=_FAILS))
@checkpoint
@_choice
@_version
@_lines
@_scratch
def stats(checkpoint: str, as_json: bool, **options: Any) -> None:
    """Count the keys and bytes of each bin."""
    with reading.open(checkpoint, scratch=options["scratch"]) as opened:
        table = count(opened, _sources(opened, options))
        _print(table.to_reader(), table.num_rows, as_json=as_json)
    if not as_json:
        keys, size = (pc.sum(table.column(name)).as_py() or 0 for name in ("keys", "bytes"))
        places = len(set(table.column("partition").to_pylist()))
        click.echo(f"total: {keys} keys and {size} bytes in {places} partitions")


@state.command(
    epilog=example(
        "binshift state diff checkpoint@11 checkpoint@12",
        "binshift state diff checkpoint copy-of-it --format parquet --output differences.parquet",
        errors=_FAILS,
    )
)
@click.argument("before")
@click.argument("after")
@_choice
@_head
@click.option(
    "--format", type=click.Choice(FORMATS), default="parquet", show_default=True, help="With --output."
)
@click.option("--output", metavar="PATH", help="Write all differences to a file, or a URI that pyarrow knows.")
@_lines
@_scratch
def diff(
    before: str, after: str, head: int, format: str, output: str | None, as_json: bool, **options: Any
) -> None:
    """Compare two versions, or two checkpoints.

    BEFORE and AFTER are checkpoints, each at its newest version, or at version V as CHECKPOINT@V.
    """
    if as_json and output is not None:
        raise click.UsageError("--json prints and --output writes a file; give one of them.")
    with contextlib.ExitStack() as stack:
        sides = []
        for path, version in map(_at, (before, after)):
            opened = stack.enter_context(reading.open(path, scratch=options["scratch"]))
            sides.append(Side(opened, _source(opened, {**options, "version": version})))
        rows = differences(*sides)
        if output is None:
            _print(rows, head, as_json=as_json)
        else:
            click.echo(f"{shown(output)}: {write(rows, output, format)} rows")


@state.command(
    epilog=example("binshift state export checkpoint --format parquet --output state", errors=_FAILS)
)
@checkpoint
@_choice
@_places
@_version
@click.option("--format", type=click.Choice(FORMATS), default="parquet", show_default=True)
@click.option("--output", required=True, metavar="DIR", help="The directory, or a URI that pyarrow knows.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per file.")
@_scratch
def export(checkpoint: str, format: str, output: str, as_json: bool, **options: Any) -> None:
    """Write state to a directory: a file for each family.

    Memory stays flat, whatever the size of the state.
    """
    with reading.open(checkpoint, scratch=options["scratch"]) as opened:
        sources = [s for s in _sources(opened, options) if not s.is_unused]
        if not sources:
            raise ConfigurationError(
                f"nothing of {shown(checkpoint)} fits; look with 'binshift state show {shown(checkpoint)}'",
                condition="SOURCE_NOT_FOUND",
                operator=options["operator"],
                store=options["store"],
                family=options["family"],
            )
        if not is_uri(output):
            Path(output).mkdir(parents=True, exist_ok=True)
        for source in sources:
            names = [str(source.operator.id), source.store.name, source.family.name]
            name = "-".join(n for n in names if n != "default").replace("/", "_")
            path = within(output, f"{name}.{format}")
            rows = write(_scan(opened, source, options), path, format)
            if as_json:
                print_json({"path": shown(path), "rows": rows})
            else:
                click.echo(f"{shown(path)}: {rows} rows")


COMMANDS = (state,)


def _at(text: str) -> tuple[str, int | None]:
    """A checkpoint and, if it is named, a version."""
    path, at, version = text.rpartition("@")
    return (path, int(version)) if at and version.isdigit() else (text, None)


def _scan(opened: Checkpoint, source: Source, options: dict[str, Any]) -> pa.RecordBatchReader:
    return opened.scan(source, bins=options["bins"] or None, partitions=options["partitions"] or None)


def _sources(opened: Checkpoint, options: dict[str, Any]) -> list[Source]:
    return opened.sources(
        operator=options["operator"],
        store=options["store"],
        family=options["family"],
        version=options["version"],
    )


def _source(opened: Checkpoint, options: dict[str, Any]) -> Source:
    return opened.source(
        operator=options["operator"],
        store=options["store"],
        family=options["family"],
        version=options["version"],
    )


def _key(text: str, source: Source) -> dict[str, Any]:
    """A JSON object of columns, or the only column's value."""
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    fields = source.family.key.fields
    if len(fields) != 1 or fields[0].type.kind is TypeKind.STRUCT:
        names = ", ".join(f.name for f in fields)
        wanted = f"a JSON object with some of {names}"
        raise impossible(ConfigurationError, "key", text, wanted, what=f"{text} as a key of {source}")
    try:
        return {fields[0].name: pa.scalar(text).cast(fields[0].type.arrow).as_py()}
    except (pa.ArrowException, ValueError) as error:
        wanted = f"a value of type {fields[0].type.name}"
        raise impossible_key(fields[0].name, text, wanted) from error


def _print(reader: pa.RecordBatchReader, head: int, *, as_json: bool) -> None:
    rows = (row for batch in _first(reader, head) for row in json_rows(batch))
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    else:
        print_table(reader.schema.names, ([_cell(v) for v in row.values()] for row in rows), is_text=True)


def _first(reader: pa.RecordBatchReader, n: int) -> Iterator[pa.RecordBatch]:
    left = n
    while left > 0 and (batch := next(reader, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _show_overview(opened: Checkpoint, at: int | None, *, as_json: bool) -> None:
    version = opened._facts.require_version(at)
    sources = [s for s in opened.sources(version=version) if not s.is_unused]
    table = opened.routing(version)
    columns = ("operator", "name", "storage", "store", "family", "partitions", "key", "value")
    rows = [
        (
            s.operator.id,
            s.operator.name,
            s.operator.storage,
            s.store.name,
            s.family.name,
            len(opened._facts.partitions(s.operator, version)),
            ", ".join(f"{f.name} {f.type.name}" for f in s.family.key.fields),
            ", ".join(f"{f.name} {f.type.name}" for f in s.family.value.fields),
        )
        for s in sources
    ]
    if as_json:
        facts = {
            "versions": [opened.versions[0], opened.versions[-1]],
            "version": version,
            "bins": opened._facts.bins,
            "routing_epoch": table.epoch if table else None,
            "families": [dict(zip(columns, row, strict=True)) for row in rows],
        }
        click.echo(json.dumps(facts))
        return
    click.echo(f"versions {opened.versions[0]} to {opened.versions[-1]}; this is version {version}")
    if table:
        sizes = table.sizes()
        click.echo(
            f"{table.bins} bins in {table.partitions} partitions ({min(sizes)} to {max(sizes)} each) "
            f"since epoch {table.epoch}"
        )
    print_table(columns, rows, is_text=True)
