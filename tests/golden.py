"""The golden example of each JSON file of `binshift/`, which the parsers of both languages are tested with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
#: Files that older versions wrote, which are read and not written.
OLD = Path(__file__).parent / "golden_old"
#: The epoch of the old routing entry, and the version of the ids.
EPOCH = 4
#: The epoch of the routing entry that follows the old one.
NEXT = 6
ENTRY = f"routing/{NEXT}-d31c74b6"
PLAN = "plans/0b6c3a52-6c0f-4c1e-9a57-3f7f0d6f5f10.json"
SAVEPOINT = "savepoints/5-4d1f5a0e-2f1c-4c57-8f0b-6a3d9b1c7e22.json"
OLD_FILES = (f"routing/{EPOCH}", "runs.json")
FILES = (
    "layout.json",
    ENTRY,
    "runs/3",
    "ended.json",
    PLAN,
    "shipping.json",
    "served.json",
    "statistics.json",
    f"ids/{EPOCH}",
    "changed_keys/7",
    SAVEPOINT,
)


def golden(name: str) -> Any:
    return json.loads(((OLD if name in OLD_FILES else GOLDEN) / name).read_text())


def checkpoint(root: Path) -> Path:
    """A checkpoint with all of them, in whose log of commits the ids are those of the golden file."""
    for source, names in ((GOLDEN, FILES), (OLD, OLD_FILES)):
        for name in names:
            target = root / "binshift" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, target)
    for folder in ("offsets", "commits"):
        (root / folder).mkdir()
        (root / folder / str(EPOCH)).write_text("v1\n{}\n")
    (root / "commits" / str(EPOCH - 1)).write_text(
        f"v2\n{json.dumps({'stateUniqueIds': golden(f'ids/{EPOCH}')})}"
    )
    return root
