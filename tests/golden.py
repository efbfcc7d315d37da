"""The golden example of each JSON file of `binshift/`, which the parsers of both languages are tested with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
#: The epoch of the routing entry, and the version of the ids.
EPOCH = 4
FILES = (
    "layout.json",
    f"routing/{EPOCH}",
    "runs.json",
    "ended.json",
    "plan.json",
    "shipping.json",
    "served.json",
    "statistics.json",
    f"ids/{EPOCH}",
    "changed_keys/7",
)


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


def checkpoint(root: Path) -> Path:
    """A checkpoint with all of them, in whose log of commits the ids are those of the golden file."""
    for name in FILES:
        target = root / "binshift" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(GOLDEN / name, target)
    for folder in ("offsets", "commits"):
        (root / folder).mkdir()
        (root / folder / str(EPOCH)).write_text("v1\n{}\n")
    (root / "commits" / str(EPOCH - 1)).write_text(
        f"v2\n{json.dumps({'stateUniqueIds': golden(f'ids/{EPOCH}')})}"
    )
    return root
