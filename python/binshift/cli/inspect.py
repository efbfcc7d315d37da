"""`binshift inspect` and `binshift export`: state without a JVM."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

import binshift.inspect as reading
from binshift.cli.exits import described
from binshift.cli.output import checkpoint, combined, example, print_json, print_table
from binshift.errors import ConfigurationError, StateFormatError
from binshift.inspect import Checkpoint, Source
from binshift.inspect.diff import Side, diff
from binshift.inspect.export import FORMATS, export, json_rows
from binshift.inspect.stats import stats
from binshift.inspect.types import Kind

__all__ = ["COMMANDS"]

_SHOWN = 10


#: The options that name what is read.
_choice = combined(
    click.option("--operator", type=int, metavar="N", help="Stateful operator, by its id."),
    click.option("--store", metavar="NAME", help="Store of the operator; joins have several."),
    click.option("--family", metavar="NAME", help="Column family: a state variable, or an index."),
    click.option("--bin", "bins", type=int, multiple=True, metavar="B", help="This bin only; repeatable."),
    click.option("--partition", "partitions", type=int, multiple=True, metavar="P", help="Repeatable."),
    click.option("--version", type=int, metavar="V", help="What batch V - 1 committed; else the newest."),
    click.option("--to", type=click.Choice(FORMATS), help="Write a file of this format."),
    click.option("--output", metavar="PATH", help="The file, or a URI that pyarrow knows."),
    click.option("--scratch", type=click.Path(file_okay=False), help="Where partitions are put together."),
)
_CODES = "\n\n" + described(ConfigurationError, StateFormatError)


@click.command(
    "inspect",
    epilog=example(
        "binshift inspect checkpoint",
        "binshift inspect checkpoint --bin 3 --head 5",
        "binshift inspect checkpoint --key key7 --json",
        "binshift inspect checkpoint --diff 11 12",
        "binshift inspect --diff checkpoint copy-of-it --to parquet --output differences.parquet",
    )
    + _CODES,
)
@click.argument("checkpoint", required=False)
@_choice
@click.option("--key", metavar="KEY", help="Rows of a key: a value, or a JSON object of columns.")
@click.option(
    "--head", type=click.IntRange(min=0), metavar="N", help=f"The first N rows; {_SHOWN} if not said."
)
@click.option("--stats", "show_stats", is_flag=True, help="Keys and bytes of each partition and bin.")
@click.option("--history", is_flag=True, help="The routing log.")
@click.option(
    "--diff", "sides", nargs=2, metavar="A B", help="What differs between two versions or checkpoints."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
def inspect_(
    checkpoint: str | None,
    key: str | None,
    head: int | None,
    show_stats: bool,
    history: bool,
    sides: tuple[str, str] | None,
    **options: Any,
) -> None:
    """Look into the state of a checkpoint, of binshift's or of Spark's RocksDB provider.

    Without options: its versions, operators and families. With --operator, --store, --family, --bin,
    --partition, --key or --head: rows.
    """
    if options["as_json"] and options["to"] is not None:
        raise click.UsageError("--json prints and --to writes a file; give one of them.")
    if sides is not None:
        _show_diff(checkpoint, sides, head, options)
        return
    if checkpoint is None:
        raise click.UsageError("Missing argument 'CHECKPOINT'.")
    with reading.open(checkpoint, scratch=options["scratch"]) as opened:
        if history:
            _show_table(opened.history(), options["as_json"])
        elif show_stats:
            _show_table(stats(opened, _sources(opened, options)), options["as_json"])
        elif key is not None:
            source = _source(opened, options)
            _show(opened.lookup(_key(key, source), source).to_reader(), head, options)
        elif head is not None or any(
            options[o] not in (None, ()) for o in ("operator", "store", "family", "bins", "partitions", "to")
        ):
            _show(_scan(opened, _source(opened, options), options), head, options)
        else:
            _show_overview(opened, options)


@click.command(
    "export",
    epilog=example("binshift export checkpoint --to parquet --output state") + _CODES,
)
@checkpoint
@_choice
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per file.")
def export_(checkpoint: str, as_json: bool, **options: Any) -> None:
    """Write all state, or what the options name of it, to a directory: a file for each family.

    Memory stays flat, whatever the size of the state.
    """
    if options["output"] is None:
        raise click.UsageError("Missing option '--output'.")
    format = options["to"] or "parquet"
    with reading.open(checkpoint, scratch=options["scratch"]) as opened:
        sources = [s for s in _sources(opened, options) if not s.is_unused]
        if not sources:
            raise ConfigurationError(f"nothing of {checkpoint} fits; look with `binshift inspect {checkpoint}`")
        if "://" not in options["output"]:
            Path(options["output"]).mkdir(parents=True, exist_ok=True)
        for source in sources:
            names = [str(source.operator.id), source.store.name, source.family.name]
            name = "-".join(n for n in names if n != "default").replace("/", "_")
            path = f"{options['output'].rstrip('/')}/{name}.{format}"
            rows = export(_scan(opened, source, options), path, format)
            if as_json:
                print_json({"path": path, "rows": rows})
            else:
                click.echo(f"{path}: {rows} rows")


COMMANDS = (inspect_, export_)


def _scan(opened: Checkpoint, source: Source, options: dict[str, Any]) -> pa.RecordBatchReader:
    return opened.scan(source, bins=options["bins"] or None, partitions=options["partitions"] or None)


def _sources(opened: Checkpoint, options: dict[str, Any]) -> list[Source]:
    return opened.sources(options["operator"], options["store"], options["family"], options["version"])


def _source(opened: Checkpoint, options: dict[str, Any]) -> Source:
    return opened.source(options["operator"], options["store"], options["family"], options["version"])


def _key(text: str, source: Source) -> dict[str, Any]:
    """A JSON object of columns, or the only column's value."""
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    fields = source.family.key.fields
    if len(fields) != 1 or fields[0].type.kind is Kind.STRUCT:
        names = ", ".join(f.name for f in fields)
        raise ConfigurationError(f"{text} is no key of {source}; give a JSON object with some of {names}")
    try:
        return {fields[0].name: pa.scalar(text).cast(fields[0].type.arrow).as_py()}
    except (pa.ArrowException, ValueError) as error:
        raise ConfigurationError(f"{text} is no {fields[0].type.name}, as {fields[0].name} is") from error


def _show(reader: pa.RecordBatchReader, head: int | None, options: dict[str, Any]) -> None:
    if options["to"] is not None:
        if options["output"] is None:
            raise click.UsageError("Missing option '--output'.")
        limited = (
            reader if head is None else pa.RecordBatchReader.from_batches(reader.schema, _first(reader, head))
        )
        rows = export(limited, options["output"], options["to"])
        click.echo(f"{options['output']}: {rows} rows")
        return
    batches = _first(reader, _SHOWN if head is None else head)
    if options["as_json"]:
        for batch in batches:
            for row in json_rows(batch):
                click.echo(json.dumps(row, ensure_ascii=False))
    else:
        rows_ = [row for batch in batches for row in json_rows(batch)]
        print_table(reader.schema.names, ([_cell(v) for v in row.values()] for row in rows_), is_text=True)


def _first(reader: pa.RecordBatchReader, n: int) -> Iterator[pa.RecordBatch]:
    left = n
    while left > 0 and (batch := next(reader, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _show_table(table: pa.Table, as_json: bool) -> None:
    rows = [r for batch in table.to_batches() for r in json_rows(batch)]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        print_table(table.column_names, ([_cell(v) for v in row.values()] for row in rows), is_text=True)


def _show_overview(opened: Checkpoint, options: dict[str, Any]) -> None:
    sources = [s for s in _sources(opened, options) if not s.is_unused]
    version = opened.layout.require_version(options["version"])
    table = opened.routing(version)
    columns = ("operator", "name", "storage", "store", "family", "partitions", "key", "value")
    rows = [
        (
            s.operator.id,
            s.operator.name,
            s.operator.storage,
            s.store.name,
            s.family.name,
            len(opened.layout.partitions(s.operator, version)),
            ", ".join(f"{f.name} {f.type.name}" for f in s.family.key.fields),
            ", ".join(f"{f.name} {f.type.name}" for f in s.family.value.fields),
        )
        for s in sources
    ]
    if options["as_json"]:
        facts = {
            "versions": [opened.versions[0], opened.versions[-1]],
            "version": version,
            "bins": opened.layout.bins,
            "routingEpoch": table.epoch if table else None,
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


def _show_diff(
    checkpoint: str | None, sides: tuple[str, str], head: int | None, options: dict[str, Any]
) -> None:
    """Two versions of a checkpoint, or two checkpoints at their newest versions, or at --version."""
    scratch = options["scratch"]
    with contextlib.ExitStack() as stack:
        if checkpoint is not None:
            if not all(s.isdigit() for s in sides):
                raise click.UsageError(
                    "With CHECKPOINT, --diff takes two versions; without it, two checkpoints."
                )
            opened = stack.enter_context(reading.open(checkpoint, scratch=scratch))
            pair = [(opened, int(side)) for side in sides]
        else:
            pair = [(stack.enter_context(reading.open(s, scratch=scratch)), options["version"]) for s in sides]
        before, after = (
            Side(c, c.source(options["operator"], options["store"], options["family"], v)) for c, v in pair
        )
        _show(diff(before, after), head, options)
