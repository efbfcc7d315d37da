"""Builds the site of the documentation into build/site; a warning is an error.

Files at the repository's root, and the notebook, stay where a visitor of the repository looks for them. So all
pages are first put together in build/docs, with their links leading within the site.
"""

from __future__ import annotations

import os.path
import re
import shutil
import sys
from pathlib import Path

from nbconvert import MarkdownExporter
from sphinx.cmd.build import main as sphinx

from devtools.pages import with_anchors

ROOT = Path(__file__).parents[1]
STAGED, SITE = ROOT / "build/docs", ROOT / "build/site"
#: Pages that are not below docs/: file -> page.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "BENCHMARKS.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
    "python/examples/rescaling.ipynb": "rescaling.md",
}
#: A link, or a picture, to a file.
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)((?:#[^)\s]*)?\))")


def main() -> None:
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    arguments = [
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        f"{ROOT}/build/doctrees",
        str(STAGED),
        str(SITE),
    ]
    sys.exit(sphinx(arguments) or print(f"{SITE}/index.html"))


def stage() -> None:
    """Puts all pages together."""
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGED, ignore=shutil.ignore_patterns("*.parquet"))
    for page in STAGED.rglob("*.md"):
        page.write_text(relinked(page.read_text(), f"docs/{page.relative_to(STAGED)}"))
    errors = STAGED / "errors.md"
    errors.write_text(with_anchors(errors.read_text()))
    for source, name in PAGES.items():
        text = converted(ROOT / source, STAGED)
        (STAGED / name).write_text(relinked(text, source))


def converted(file: Path, beside: Path) -> str:
    """A file as Markdown; pictures of a notebook are put beside it."""
    if file.suffix == ".md":
        return file.read_text()
    if file.suffix == ".ipynb":
        body, resources = MarkdownExporter().from_filename(str(file))
        for name, data in resources["outputs"].items():
            (beside / name).write_bytes(data)
        # Of tables, Jupyter's styles; the site has its own.
        return re.sub(r"<style scoped>.*?</style>", "", body, flags=re.DOTALL)
    return f"# Licence\n\n```text\n{file.read_text()}```\n"


def relinked(text: str, source: str) -> str:
    """Links between files of the repository become links between pages."""
    return LINK.sub(lambda link: link[1] + page_of(link[2], source) + link[3], text)


def page_of(target: str, source: str) -> str:
    """The place in the site to which a link of the file `source` leads."""
    goal = site_path(os.path.normpath(os.path.join(os.path.dirname(source), target)))
    if goal is None:
        return target
    return os.path.relpath(goal, os.path.dirname(site_path(source) or "") or ".")


def site_path(file: str) -> str | None:
    """The place of a file in the site, whose start page stands for README.md; None if it has none."""
    if file == "README.md":
        return "index.md"
    if file in PAGES:
        return PAGES[file]
    return file.removeprefix("docs/") if file.startswith("docs/") else None


if __name__ == "__main__":
    main()
