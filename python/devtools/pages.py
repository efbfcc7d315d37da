"""Pages of the documentation of which a part is written by a program."""

from __future__ import annotations

__all__ = ["with_part"]


def with_part(text: str, marks: tuple[str, str], part: str) -> str:
    """The text of a page with another part between its two marks, each of which it has once."""
    before, rest = text.split(marks[0])
    _, after = rest.split(marks[1])
    return f"{before}{marks[0]}{part}{marks[1]}{after}"
