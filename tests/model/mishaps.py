"""Mishaps of drivers and executors, and changes that people make to the logs."""

from __future__ import annotations

from collections.abc import Iterator

from model.rules import Guard, Rules
from model.state import State
from model.steps import Step, replaced, without

MISHAPS = {"driver dies", "executors die", "wind back", "delete by hand"}


def mishaps(rules: Rules, s: State) -> Iterator[Step]:
    for d in s.drivers:
        if s.left.crashes:
            left = s.left._replace(crashes=s.left.crashes - 1)
            yield Step(("driver dies", d.run), without(s, d)._replace(left=left))
        if rules.stops and d.phase == "log next":
            yield Step(("stop", d.run), without(s, d))
        if s.left.losses and d.phase == "run" and not d.done and (any(d.stores) or d.staged):
            left = s.left._replace(losses=s.left.losses - 1)
            now = d._replace(stores=(None,) * rules.partitions, staged=None)
            yield Step(("executors die", d.run), replaced(s, d, now)._replace(left=left))
    yield from _wind_back(rules, s)
    yield from _delete(s)


def _delete(s: State) -> Iterator[Step]:
    """Somebody deletes a file while all stores are alive, and no step that was looked at is to take effect."""
    c = s.files
    if not s.left.deletions or not c.commits:
        return
    if any(d.next_entry is not None or (d.entry is not None and d.entry.epoch >= d.epoch) for d in s.drivers):
        return
    left = s.left._replace(deletions=s.left.deletions - 1)
    for file in sorted(c.changelogs, key=repr):
        if file.version <= len(c.commits):
            files = c._replace(changelogs=c.changelogs - {file}, is_harmed=True)
            yield Step(("delete by hand", file.partition, file.version), s._replace(files=files, left=left))


def _wind_back(rules: Rules, s: State) -> Iterator[Step]:
    """Somebody takes the latest epochs out of the logs by hand, so that they run again.

    This goes back as far as versions are retained. The query was stopped before: no driver is alive and, in
    format 1, no executor of the run before is about to write.
    """
    c = s.files
    is_uploading = rules.format == 1 and any(u.phase == "checked" for u in s.uploads)
    if (
        not s.left.winds
        or (s.drivers and not rules.winds_while_alive)
        or (is_uploading and not rules.winds_while_uploading)
    ):
        return
    left = s.left._replace(winds=s.left.winds - 1)
    kept = max((p.version for p in c.savepoints), default=0)
    for version in range(c.oldest, len(c.commits) + 1):
        if version < kept and rules.format == 1 and rules.has(Guard.SAVEPOINT_STOPS_START):
            continue  # Nothing happens any more, because each start is refused.
        for logged in (version, version + 1):
            if logged <= len(c.offsets) and (version, logged) != (len(c.commits), len(c.offsets)):
                back = c._replace(commits=c.commits[:version], offsets=c.offsets[:logged], winds=c.winds + 1)
                yield Step(("wind back", version, logged), s._replace(files=back, left=left))
