"""Keeps track of what the recordings in the documentation were made with.

A recording is out of date if the program that made it has changed, or the code whose output it shows. A
fingerprint of both is kept in docs/recordings.json, so that a test notices. Layout, comments, docstrings,
imports and annotations don't count.

    python scripts/recordings.py                       runs the notebook anew, and signs it
    python scripts/recordings.py --sign docs/demo.png  signs a picture that was made anew
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIGNED = ROOT / "docs/recordings.json"
NOTEBOOK = "python/examples/rescaling.ipynb"
PYTHON = "python/binshift"
DEMO = "python/examples/flights"
WIDGET = "application/vnd.jupyter.widget-view+json"
#: Each recording, and what it shows.
SHOWN = {
    NOTEBOOK: [
        NOTEBOOK,
        *(f"{PYTHON}/{name}.py" for name in ("display", "report", "plot", "epoch_log")),
        *(f"{PYTHON}/autoscaling/{name}.py" for name in ("policy", "settings", "decision", "observed")),
        *(f"{PYTHON}/planning/{name}.py" for name in ("routing", "plan", "strategies", "targets", "load")),
    ],
    "docs/demo.png": [f"{DEMO}/{name}.py" for name in ("__main__", "data", "files", "stream", "picture")],
    "docs/bins-tab.png": ["jvm_shim/src/main/scala/org/apache/spark/sql/binshift/ui/BinsPage.scala"],
}


def fingerprint(recording: str) -> dict[str, str]:
    """The fingerprint that a recording would get now: of each source, and of itself."""
    found = {source: digest(said(ROOT / source)) for source in SHOWN[recording]}
    found["recording"] = hashlib.sha256((ROOT / recording).read_bytes()).hexdigest()[:16]
    return found


def stale(recording: str) -> list[str]:
    """The sources that have changed since the recording was signed; only its name if it never was."""
    signed = json.loads(SIGNED.read_text()).get(recording) if SIGNED.exists() else None
    if signed is None:
        return [recording]
    now = fingerprint(recording)
    return sorted(name for name in {*now, *signed} if now.get(name) != signed.get(name))


def sign(recording: str) -> None:
    """Confirms that a recording shows what its sources do now."""
    signed = json.loads(SIGNED.read_text()) if SIGNED.exists() else {}
    signed[recording] = fingerprint(recording)
    SIGNED.write_text(json.dumps(signed, indent=2, sort_keys=True) + "\n")


def said(source: Path) -> str:
    """A source without the parts that don't affect a recording."""
    text = source.read_text()
    if source.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    if source.suffix == ".py":
        tree = ast.parse(text)
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                vars(node)["body"] = [_plain(n) for n in body if not _is_silent(n)]
            for name in {"annotation", "returns"} & set(vars(node)):
                # A field of a class can't do without an annotation.
                vars(node)[name] = ast.Constant(...) if isinstance(node, ast.AnnAssign) else None
        return ast.unparse(tree)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    lines = (line.strip() for line in text.splitlines() if not re.match(r"\s*(package|import) ", line))
    return " ".join(line for line in lines if line)


def _is_silent(node: ast.stmt) -> bool:
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_docstring or isinstance(node, ast.Import | ast.ImportFrom)


def _plain(node: ast.stmt) -> ast.stmt:
    """An assignment without its annotation."""
    if not isinstance(node, ast.AnnAssign) or node.value is None:
        return node
    return ast.copy_location(ast.Assign([node.target], node.value), node)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def record_notebook(file: Path) -> None:
    """Runs all cells and keeps their outputs."""
    import nbformat  # noqa: PLC0415 - the extra docs
    from nbclient import NotebookClient  # noqa: PLC0415

    notebook = nbformat.read(file, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": "."}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            # A bar that moves, and what goes to stderr, is nothing to be kept.
            cell.outputs = [
                o for o in cell.outputs if o.get("name") != "stderr" and WIDGET not in o.get("data", {})
            ]
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    nbformat.write(notebook, file)


def main() -> None:
    parser = argparse.ArgumentParser(description="Records the notebook anew, or signs a picture.")
    parser.add_argument("--sign", nargs="+", metavar="PICTURE", choices=SHOWN, help="signs, and runs nothing")
    args = parser.parse_args()
    if not args.sign:
        record_notebook(ROOT / NOTEBOOK)
    for recording in args.sign or [NOTEBOOK]:
        sign(recording)


if __name__ == "__main__":
    main()
