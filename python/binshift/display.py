"""Numbers and tables for people, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table", "in_bytes", "in_seconds", "text_table"]


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


def text_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, is_text: bool = False) -> str:
    """Columns of equal width, set to the right but for the first one, or to the left if it `is_text`."""
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
    """A table as notebooks show it; all text is escaped."""
    header = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    below = f"<div>{escape(note)}</div>" if note else ""
    return (
        f"<div><strong>{escape(title)}</strong><table><thead><tr>{header}</tr></thead>"
        f"<tbody>{body}</tbody></table>{below}</div>"
    )
