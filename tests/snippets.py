"""The Python blocks in the pages of the documentation."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
#: The first line of a program that readers are asked to save: its file name.
_FILE = re.compile(r"# \w+\.py\n")
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A program, and the output that the block after it shows.

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
        """The program's statements."""
        return ast.parse(self.program)

    @property
    def free_names(self) -> set[str]:
        """Names that the program uses and doesn't define."""
        names = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name)]
        imports = [n for n in ast.walk(self.tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        imported = {(a.asname or a.name).split(".")[0] for n in imports for a in n.names}
        made = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        taken = set()
        if not self.makes_a_session:
            # The page is about one query; a block that names it doesn't make another.
            made -= {"controller"}
            taken = {"binshift"}
        caught = {n.name for n in ast.walk(self.tree) if isinstance(n, ast.ExceptHandler)}
        return {n.id for n in names} - imported - made - caught - set(dir(builtins)) - taken

    @property
    def makes_a_session(self) -> bool:
        """True for a complete program, which another test runs."""
        return "getOrCreate()" in self.program or bool(_FILE.match(self.program))

    @property
    def needs_a_query(self) -> bool:
        """True if the program needs a query that the page assumes."""
        return bool(self.free_names) and not self.makes_a_session


def snippets() -> Iterator[Snippet]:
    """The snippets of all pages, in order."""
    for page in PAGES:
        blocks = [b for b in _FENCE.findall(page.read_text()) if b[0] == "python"]
        for i, (_, program, printed) in enumerate(blocks):
            yield Snippet(f"{page.relative_to(ROOT)}-{i}", program, printed)
