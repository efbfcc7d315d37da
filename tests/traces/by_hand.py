"""Notes in a trace what somebody does to a checkpoint by hand."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path


def wound_back(trace: Path, checkpoint: Path) -> None:
    """Epochs were taken out of the logs, which have what is there now."""
    line = {
        "t": int(time.time() * 1000),
        "n": 0,
        "process": f"hand-{os.getpid()}-{uuid.uuid4().hex[:8]}",
        "event": "wound back",
        "dir": str(checkpoint),
        "offsets": _newest(checkpoint / "offsets") + 1,
        "commits": _newest(checkpoint / "commits") + 1,
    }
    trace.mkdir(parents=True, exist_ok=True)
    (trace / f"{line['process']}.jsonl").write_text(json.dumps(line, separators=(",", ":")) + "\n")


def _newest(log: Path) -> int:
    return max((int(f.name) for f in log.iterdir() if f.name.isdigit()), default=-1)
