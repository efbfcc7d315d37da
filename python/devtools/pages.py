"""Writes the generated parts of pages of the documentation."""

from __future__ import annotations

import re

from binshift import errors

__all__ = ["with_anchors", "with_part"]

#: A row of a table of errors: its condition, and its class if the section has several.
_ERROR = re.compile(r"^\| (?=`([A-Z_]+)` \|(?: `(\w+)` \|)?)", re.MULTILINE)


def with_part(text: str, marks: tuple[str, str], part: str) -> str:
    """The text of a page with another part between its two marks, each of which it has once."""
    before, rest = text.split(marks[0])
    _, after = rest.split(marks[1])
    return f"{before}{marks[0]}{part}{marks[1]}{after}"


def with_anchors(text: str) -> str:
    """The page of errors with an anchor in each row, to which the error links (`BinshiftError.url`).

    An error of the JVM without a condition links to its class: to the row of the condition that the class has.
    """
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return "".join(_anchored(section, section.removeprefix("## ").partition("\n")[0]) for section in sections)


def _anchored(section: str, title: str) -> str:
    def anchor(row: re.Match[str]) -> str:
        condition, kind = row[1], row[2] or title
        names = [f"{kind}.{condition}", *([kind] if getattr(errors, kind).condition == condition else [])]
        return row[0] + "".join(f'<a id="{name}"></a>' for name in names)

    return _ERROR.sub(anchor, section)
