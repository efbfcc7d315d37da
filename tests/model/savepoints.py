"""Savepoints: another process keeps the files of a committed version, and asks no driver.

It writes a file that keeps everything, looks whether its version is still retained, finds out which files
that version needs, and keeps those. Whoever deletes files looks for savepoints after deciding what to delete.
"""

from __future__ import annotations

from collections.abc import Iterator

from model.recovery import File, content, expected, named, owners, retained, way
from model.rules import Guard, Rules
from model.state import Checkpoint, Cleanup, Entry, PerBin, Savepoint, State
from model.steps import Step


def savepoints(rules: Rules, s: State) -> Iterator[Step]:
    c = s.files
    if s.left.savepoints and c.commits:
        left = s.left._replace(savepoints=s.left.savepoints - 1)
        for version in retained(c):
            chosen = Savepoint("chosen", version)
            yield Step(("choose a version to keep", version), _with(s, None, chosen)._replace(left=left))
    for p in sorted(c.savepoints, key=repr):
        match p.phase:
            case "chosen":
                yield Step(("begin a savepoint", p.version), _with(s, p, p._replace(phase="begun")))
            case "begun":
                is_retained = p.version in retained(c) or not rules.has(Guard.SAVEPOINT_OF_RETAINED)
                yield Step(
                    ("look for later epochs", p.version),
                    _with(s, p, p._replace(phase="looked") if is_retained else None),
                )
            case "looked" if len(c.commits) < p.version:
                yield Step(("give up a savepoint of a lost epoch", p.version), _with(s, p, None))
            case "looked":
                yield _finished(rules, s, p)
            case "made":
                yield Step(("drop a savepoint", p.version), _with(s, p, None))


def _finished(rules: Rules, s: State, p: Savepoint) -> Step:
    c = s.files
    tables = owners(rules, c, named(rules, c, p.version - 1), p.version - 1)
    ways = [way(rules, c, tables, bin, p.version) for bin in range(rules.bins)]
    files = frozenset(f for w in ways if w is not None for f in w)
    event = ("make a savepoint", p.version)
    if None in ways and not c.is_harmed:
        return Step(event, s, f"a savepoint of version {p.version}, which was retained, cannot be made")
    rows = PerBin(None if w is None else content(w, bin) for bin, w in enumerate(ways))
    if any(r != expected(c, p.version) for r in rows) and not c.is_harmed:
        return Step(event, s, f"a savepoint of version {p.version} has {rows}")
    return Step(event, _with(s, p, p._replace(phase="made", files=files)))


def kept(rules: Rules, c: Checkpoint, x: Cleanup) -> Cleanup | None:
    """What is left of a cleanup after a look for savepoints; `None` if it must not delete anything now."""
    if any(p.phase in ("begun", "looked") for p in c.savepoints) and rules.has(Guard.SAVEPOINT_KEEPS_ALL):
        return None
    return x._replace(files=x.files - spared(c), phase="ready")


def spared(c: Checkpoint) -> frozenset[File | Entry]:
    return frozenset(f for p in c.savepoints for f in p.files)


def savepoints_whole(c: Checkpoint) -> str | None:
    """The files of a savepoint that was made are there, with the content that they had."""
    there = {_said(f) for files in (c.changelogs, c.snapshots) for f in files}
    for p in c.savepoints:
        for f in p.files:
            if _said(f) not in there and not c.is_harmed:
                return f"a savepoint of version {p.version} lacks {f}"
    return None


def _said(f: File) -> File:
    """A file without the record under which it was written, which a late twin may have changed."""
    return f._replace(under=None)


def _with(s: State, old: Savepoint | None, new: Savepoint | None) -> State:
    there = s.files.savepoints - {old} | ({new} if new else set())
    return s._replace(files=s.files._replace(savepoints=there))
