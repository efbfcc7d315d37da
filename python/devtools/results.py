"""The results of a long run, a line of JSON for each part, so that the run can continue later."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["commit", "read"]


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def commit(repository: Path) -> str:
    """Short name of the commit that is checked out."""
    head = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(head, cwd=repository, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip()
