"""The work of executors in the background: uploads and cleanups.

They outlive their drivers, and each may freeze between its steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from model.recovery import File, first_logged, needed, oldest_entry
from model.rules import Guard, Rules
from model.savepoints import kept, spared
from model.state import Checkpoint, Cleanup, Entry, State, Upload
from model.steps import Event, Step


def uploads(rules: Rules, s: State) -> Iterator[Step]:
    """An upload takes its time: what it has found out before may be out of date once the file is there."""
    c = s.files
    for u in sorted(s.uploads, key=repr):
        file, rest = u.snapshot, s.uploads - {u}
        event = (file.partition, file.version, file.id)
        if u.phase == "checked":
            under = c.offsets[file.version - 1].record if len(c.offsets) >= file.version else None
            written = file._replace(under=under)
            there = frozenset(f for f in c.snapshots if f[:3] != file[:3]) | {written}
            yield Step(("upload", *event), s._replace(files=c._replace(snapshots=there), uploads=rest))
        elif rules.has(Guard.CHECK_BEFORE_UPLOAD) and is_lost(rules, c, u):
            yield Step(("drop a snapshot of a lost epoch", *event), s._replace(uploads=rest))
        else:
            yield Step(
                ("check before an upload", *event), s._replace(uploads=rest | {u._replace(phase="checked")})
            )


def is_lost(rules: Rules, c: Checkpoint, u: Upload) -> bool:
    """True if the record from which a snapshot's epoch was made is not in the log any more.

    Nobody can tell once Spark has purged the epoch; by then, newer versions are committed.
    """
    file = u.snapshot
    if file.version - 1 < first_logged(rules, c):
        return True
    if rules.format == 2:
        return False
    if rules.has(Guard.UPLOAD_BY_RECORD):
        return len(c.offsets) < file.version or c.offsets[file.version - 1].record != u.record
    own = next((x.number for x in c.claims if x.run == u.run), 0)
    is_disowned = any(x.number > own and x.goes_on_from < file.version for x in c.claims)
    return is_disowned and not (len(c.offsets) >= file.version and c.offsets[file.version - 1].run == u.run)


def cleanups(rules: Rules, s: State) -> Iterator[Step]:
    """Lists, and then deletes what no recovery of a retained version reads, and no savepoint keeps."""
    c = s.files
    if not rules.cleans:
        return
    under_way = {x.of for x in s.cleanups}
    # Entries are copied into savepoints; and where there are no savepoints, nothing depends on the look.
    looks = s.files.savepoints or s.left.savepoints
    for partition in range(rules.partitions if c.commits else 0):
        of = f"partition {partition}"
        if of in under_way:
            continue
        if looks and not rules.has(Guard.SAVEPOINT_AFTER_DECISION):
            early = kept(rules, c, Cleanup(of, frozenset()))
            if early is not None:
                yield _put(s, ("look for savepoints", of), Cleanup(of, spared(c), "to be decided"))
        elif files := _useless(rules, c, partition):
            yield _put(s, ("list what is useless", of), Cleanup(of, files, "listed" if looks else "ready"))
    if c.commits and "entries" not in under_way and (since := oldest_entry(rules, c)) is not None:
        older = frozenset(e for e in c.entries if e.name.epoch < since.epoch)
        if older:
            yield _put(s, ("list what is useless", "entries"), Cleanup("entries", older))
    for x in sorted(s.cleanups, key=repr):
        rest = s._replace(cleanups=s.cleanups - {x})
        match x.phase:
            case "to be decided":
                useless = _useless(rules, c, int(x.of.rpartition(" ")[2])) - x.files
                yield _put(rest, ("list what is useless", x.of), Cleanup(x.of, useless))
            case "listed":
                yield _put(rest, ("look for savepoints", x.of), kept(rules, c, x))
            case _:
                yield Step(("clean up", x.of), rest._replace(files=_cleaned(rules, c, x)))


def _put(s: State, event: Event, x: Cleanup | None) -> Step:
    return Step(event, s if x is None else s._replace(cleanups=s.cleanups | {x}))


def _useless(rules: Rules, c: Checkpoint, partition: int) -> frozenset[File | Entry]:
    wanted = needed(rules, c, partition)
    if wanted is None:
        return frozenset()
    newest = len(c.commits) if rules.has(Guard.KEEP_UNCOMMITTED) else len(c.commits) + 1
    files: frozenset[File] = c.changelogs | c.snapshots
    return frozenset(f for f in files if f.partition == partition and f.version <= newest and f not in wanted)


def _cleaned(rules: Rules, c: Checkpoint, x: Cleanup) -> Checkpoint:
    if x.of == "entries":
        return c._replace(entries=c.entries - x.files)
    if rules.has(Guard.CLEAN_SAME_FILE):
        return c._replace(changelogs=c.changelogs - x.files, snapshots=c.snapshots - x.files)
    names = {(type(f), *f[:3]) for f in x.files if not isinstance(f, Entry)}
    return c._replace(
        changelogs=frozenset(f for f in c.changelogs if (type(f), *f[:3]) not in names),
        snapshots=frozenset(f for f in c.snapshots if (type(f), *f[:3]) not in names),
    )
