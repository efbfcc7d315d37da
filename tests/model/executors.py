"""What executors do in the background, and what befalls them and their drivers."""

from __future__ import annotations

from collections.abc import Iterator

from model.recovery import key, needed
from model.rules import Guard, Rules
from model.state import Cleanup, State, Upload
from model.steps import Step, replaced, without


def uploads(rules: Rules, s: State) -> Iterator[Step]:
    """An upload takes its time: what it has found out before may be out of date once the file is there."""
    for u in s.uploads:
        f = u.snapshot
        rest = s.uploads - {u}
        event = (f.partition, f.version)
        if u.phase == "queued":
            if rules.has(Guard.CHECK_BEFORE_UPLOAD) and is_lost(rules, s, u):
                yield Step(("drop a snapshot of a lost epoch", *event), s._replace(uploads=rest))
            else:
                yield Step(("check before an upload", *event), s._replace(uploads=rest | {u._replace(phase="checked")}))
        elif u.phase == "checked":
            logged = s.offsets[f.version - 1].record if len(s.offsets) >= f.version else None
            written = f._replace(under=logged)
            snapshots = frozenset(x for x in s.snapshots if x[:3] != f[:3]) | {written}
            u2 = u._replace(phase="written", snapshot=written)
            yield Step(("upload", *event), s._replace(uploads=rest | {u2}, snapshots=snapshots))
        elif rules.has(Guard.CHECK_AFTER_UPLOAD) and is_lost(rules, s, u):
            yield Step(("delete own snapshot of a lost epoch", *event), s._replace(uploads=rest, snapshots=s.snapshots - {f}))
        else:
            yield Step(("check after an upload", *event), s._replace(uploads=rest))


def is_lost(rules: Rules, s: State, u: Upload) -> bool:
    """Whether the epoch that made a snapshot was taken out of the log after its run had logged it."""
    f = u.snapshot
    if rules.has(Guard.UPLOAD_BY_RECORD):
        return len(s.offsets) < f.version or s.offsets[f.version - 1].record != u.record
    own = next((c.number for c in s.claims if c.run == u.run), 0)
    is_disowned = any(c.number > own and c.goes_on_from < f.version for c in s.claims)
    if not is_disowned:
        return False
    if len(s.commits) >= f.version:
        ids = s.commits[f.version - 1]
        if rules.format == 2 and f.partition < len(ids) and ids[f.partition] == f.id:
            return False
    return not (len(s.offsets) >= f.version and s.offsets[f.version - 1].run == u.run)


def cleanups(rules: Rules, s: State) -> Iterator[Step]:
    """Maintenance lists a store, and then deletes what no recovery of a retained version reads."""
    newest = len(s.commits)
    if newest == 0:
        return
    for partition in range(rules.partitions):
        if any(c.partition == partition for c in s.cleanups):
            continue
        kept = needed(rules, s, partition)
        useless = frozenset(
            f for f in (*s.changelogs, *s.snapshots)
            if f.partition == partition and key(f) not in kept and (f.version <= newest or not rules.has(Guard.KEEP_UNCOMMITTED)))
        if useless:
            yield Step(("list a store for cleanup", partition), s._replace(cleanups=s.cleanups | {Cleanup(partition, useless)}))
    for c in s.cleanups:
        if rules.has(Guard.CLEAN_SAME_FILE):
            changelogs, snapshots = s.changelogs - c.files, s.snapshots - c.files
        else:
            names = {(c.partition, *key(f)) for f in c.files}
            changelogs = frozenset(f for f in s.changelogs if (f.partition, *key(f)) not in names)
            snapshots = frozenset(f for f in s.snapshots if (f.partition, *key(f)) not in names)
        yield Step(("clean up a store", c.partition),
            s._replace(changelogs=changelogs, snapshots=snapshots, cleanups=s.cleanups - {c}))


def losses(rules: Rules, s: State) -> Iterator[Step]:
    for d in s.drivers:
        if s.left.crashes:
            yield Step(("driver dies", d.run), without(s, d)._replace(left=s.left._replace(crashes=s.left.crashes - 1)))
        if s.left.losses and d.phase == "run" and not d.done and any(d.stores):
            now = d._replace(stores=(None,) * rules.partitions)
            yield Step(("executors of a run die", d.run), replaced(s, d, now)._replace(left=s.left._replace(losses=s.left.losses - 1)))


def winding_back(rules: Rules, s: State) -> Iterator[Step]:
    """Somebody takes the latest epochs out of the logs by hand, so that they run again; as far back as versions are retained."""
    if not s.left.winds or (s.drivers and not rules.winds_while_alive):
        return
    if rules.format == 1 and not rules.winds_while_uploading and any(u.phase != "queued" for u in s.uploads):
        return
    left = s.left._replace(winds=s.left.winds - 1)
    for version in range(s.floor, len(s.commits) + 1):
        for logged in (version, version + 1):
            if (version, logged) == (len(s.commits), len(s.offsets)) or logged > len(s.offsets):
                continue
            yield Step(("wind back", version, logged), s._replace(
                commits=s.commits[:version], offsets=s.offsets[:logged], winds=s.winds + 1, left=left))
