"""Finds out whether the query of a checkpoint runs, as far as another process can know."""

from __future__ import annotations

from binshift.control.directory import ControlDir
from binshift.control.mailbox import Mailbox

__all__ = ["has_ended", "query_runs"]

_LOGS = ("offsets", "commits")


def query_runs(directory: ControlDir, seconds: float) -> bool:
    """Asks the query whether it runs, until its last run is known to have ended.

    A query that was killed leaves no record of its end, and doesn't answer either. A query that has planned no
    epoch since it was started, or that takes no requests, doesn't answer although it runs.

    Parameters
    ----------
    directory : ControlDir
        The directory of a checkpoint of binshift's.
    seconds : float
        How long to wait for an answer.
    """
    return Mailbox(directory).is_served(seconds, lambda: has_ended(directory))


def has_ended(directory: ControlDir) -> bool:
    """True if the run that planned the last epoch has recorded its end, and no log was written since then.

    Also False if that isn't known, because the file system doesn't say when files were changed.
    """
    end = directory.read("binshift/ended.json")
    logged = directory.logged_epoch()
    if end is None or end.get("epoch") != logged:
        return False
    ended_at = directory.files.times("binshift").get("ended.json")
    last = [directory.files.times(log).get(str(logged)) for log in _LOGS]
    return ended_at is not None and all(at <= ended_at for at in last if at is not None)
