"""The routing entry that was in force is found from the logs and the claims of runs."""

import json
import zlib

from binshift.control.directory import open_directory
from golden import checkpoint

RUN = "6d1f4f64-58f1-4a0e-b7f5-6a3f6c3d2a03"


def write(root, epoch, assignment, previous):
    """Writes an entry, and returns its name."""
    text = json.dumps(
        {"format": 1, "epoch": epoch, "partitions": 2, "assignment": assignment, "run": RUN}
        | {"written_at": "2026-01-01T00:00:00.000Z", "previous": previous}
    )
    name = f"{epoch}-{zlib.crc32(text.encode()):08x}"
    (root / "binshift" / "routing" / name).write_text(text)
    return name


def test_behind_all_claims_the_earliest_one_leads_back_and_a_stray_entry_is_not_obeyed(tmp_path):
    root = checkpoint(tmp_path)
    for folder in ("routing", "runs"):
        for file in (root / "binshift" / folder).iterdir():
            file.unlink()
    (root / "binshift" / "runs.json").unlink()
    first = write(root, 0, [0, 0, 0, 0, 1, 1, 1, 1], None)
    write(root, 11, [1, 1, 1, 1, 0, 0, 0, 0], first)
    for run in (31, 32):
        claim = {"format": 1, "run": RUN, "began": run, "routing": first.replace("-", ":")}
        (root / "binshift" / "runs" / str(run)).write_text(
            json.dumps(claim | {"logged_at": "2026-01-01T00:00:00.007Z"})
        )
    # The logs were wound back; each of their epochs was the only one of its run.
    (root / "offsets" / "4").rename(root / "offsets" / "25")
    assert open_directory(str(root)).routing().assignment == (0, 0, 0, 0, 1, 1, 1, 1)
