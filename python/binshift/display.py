"""Formats numbers and tables for people, as text and as HTML."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from html import escape
from typing import Any

import pyarrow as pa

__all__ = ["brief", "html_table", "in_bytes", "in_seconds", "ipython_shell", "text_table", "titled"]

#: How many rows of a table a notebook shows.
_SHOWN_ROWS = 20
#: A `repr` is no longer than this.
_LONGEST_REPR = 100


def in_bytes(n: float) -> str:
    """A number of bytes with a decimal unit: `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:.0f} {unit}" if unit == "B" or n >= 100 else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:,.1f} TB"


def in_seconds(seconds: float) -> str:
    """A time given in seconds: `340 ms`, `2.31 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def brief(thing: Any, text: str | None = None) -> str:
    """A `repr` that fits on a line: `<MigrationStatus: running: 1 of 4 steps done>`.

    Without `text`, it has the fields of a dataclass that are not as they are by default.
    """
    if text is None:
        shown = ((f.name, getattr(thing, f.name), f.default) for f in fields(thing) if f.repr)
        given = ((name, value) for name, value, default in shown if default is MISSING or value != default)
        line, end = f"{type(thing).__name__}({', '.join(f'{name}={value!r}' for name, value in given)}", ")"
    else:
        line, end = f"<{type(thing).__name__}: {' '.join(text.split())}", ">"
    return f"{line if len(line) < _LONGEST_REPR else f'{line[: _LONGEST_REPR - 4]}...'}{end}"


def text_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, is_text: bool = False) -> str:
    """Columns of equal width, aligned to the right except for the first one, or to the left if it `is_text`."""
    cells = [list(head), *(["" if c is None else str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            c.ljust(w) if is_text or i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """A table as HTML for notebooks; all text is escaped."""
    header = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    below = f"<div>{escape(note)}</div>" if note else ""
    return (
        f"<div><strong>{escape(title)}</strong><table><thead><tr>{header}</tr></thead>"
        f"<tbody>{body}</tbody></table>{below}</div>"
    )


def ipython_shell() -> Any:
    """The shell of IPython in which this runs, in a notebook or a terminal; None if there is none."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def titled(table: pa.Table, title: str, **metadata: str) -> pa.Table:
    """The same table with this metadata; a notebook shows it as HTML, below the title.

    Other tables of pyarrow look as before. If a formatter for them is registered already, all of them do.
    """
    if (shell := ipython_shell()) is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        try:
            formatter.lookup_by_type(pa.Table)
        except KeyError:
            formatter.for_type(pa.Table, _html)
    return table.replace_schema_metadata(metadata | {"title": title})


def _html(table: pa.Table) -> str | None:
    """A table as HTML; None if it has no title, so that pyarrow formats it."""
    title = (table.schema.metadata or {}).get(b"title")
    if title is None:
        return None
    rows = zip(*(column.slice(0, _SHOWN_ROWS).to_pylist() for column in table.columns), strict=True)
    note = f"{table.num_rows:,} rows"
    if table.num_rows > _SHOWN_ROWS:
        note += f", of which these are the first {_SHOWN_ROWS}; to_pandas() gives all"
    return html_table(
        title.decode(), table.column_names, (["" if c is None else c for c in row] for row in rows), note
    )
