"""The blocks of Python in the pages of the documentation."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
#: The first line of a program that a page has readers save: its name.
_FILE = re.compile(r"# \w+\.py\n")
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A program, and what the block behind it says that it prints.

    Parameters
    ----------
    place : str
        Its page, and its number there.
    """

    place: str
    program: str
    printed: str

    @property
    def tree(self) -> ast.Module:
        """Its statements."""
        return ast.parse(self.program)

    @property
    def free_names(self) -> set[str]:
        """Names that it uses and does not make."""
        names = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name)]
        imports = [n for n in ast.walk(self.tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        imported = {(a.asname or a.name).split(".")[0] for n in imports for a in n.names}
        made = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        taken = set()
        if not self.makes_a_session:
            # A query is what the page is about; that it gets a name in one of its blocks makes it no other one.
            made -= {"controller"}
            taken = {"binshift"}
        caught = {n.name for n in ast.walk(self.tree) if isinstance(n, ast.ExceptHandler)}
        return {n.id for n in names} - imported - made - caught - set(dir(builtins)) - taken

    @property
    def makes_a_session(self) -> bool:
        """Whether it is a program of its own, which another test runs."""
        return "getOrCreate()" in self.program or bool(_FILE.match(self.program))

    @property
    def needs_a_query(self) -> bool:
        """Whether it is about a query that the page takes for granted."""
        return bool(self.free_names) and not self.makes_a_session


def snippets() -> Iterator[Snippet]:
    """Those of all pages, in their order."""
    for page in PAGES:
        blocks = [b for b in _FENCE.findall(page.read_text()) if b[0] == "python"]
        for i, (_, program, printed) in enumerate(blocks):
            yield Snippet(f"{page.relative_to(ROOT)}-{i}", program, printed)
