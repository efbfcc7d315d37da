"""Notes in a trace what somebody does to a checkpoint by hand."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path


def wound_back(trace: Path, checkpoint: Path) -> None:
    """Epochs were taken out of the logs, which have what is there now."""
    have = {log: _newest(checkpoint / log) + 1 for log in ("offsets", "commits")}
    wound_back_to(trace, str(checkpoint), **have)


def wound_back_to(trace: Path, checkpoint: str, *, offsets: int, commits: int) -> None:
    """Epochs from these on were taken out of the logs of a checkpoint, anywhere."""
    line = {
        "t": int(time.time() * 1000),
        "n": 0,
        "process": f"hand-{os.getpid()}-{uuid.uuid4().hex[:8]}",
        "event": "wound back",
        "dir": checkpoint,
        "offsets": offsets,
        "commits": commits,
    }
    trace.mkdir(parents=True, exist_ok=True)
    (trace / f"{line['process']}.jsonl").write_text(json.dumps(line, separators=(",", ":")) + "\n")


def _newest(log: Path) -> int:
    return max((int(f.name) for f in log.iterdir() if f.name.isdigit()), default=-1)
