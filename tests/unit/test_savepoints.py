"""Whoever makes, forks or drops a savepoint may be killed at any instant: nothing is lost, and it can go on."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

import binshift.inspect as reading
from binshift import ConfigurationError, savepoints
from binshift.control.files import Files
from binshift.control.savepoints import Savepoints
from binshift.inspect.tools.finding import Finding
from binshift.inspect.tools.fsck import Severity, fsck
from binshift.inspect.tools.fsck import _savepoints as fsck_savepoints
from binshift.savepoints import copying
from local.inspected import differences
from mortal import changes_of, is_killed, killed_at_changes

GOLDEN = Path(__file__).parents[1] / "golden_checkpoints/format-1"


@pytest.fixture(params=["count", "count-under-way"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Of format 1, and of format 2 in the middle of a migration."""
    with zipfile.ZipFile(GOLDEN / f"{request.param}.zip") as file:
        file.extractall(tmp_path)
    return tmp_path / "checkpoint"


def again(checkpoint: Path) -> Callable[[], None]:
    """Makes the checkpoint once more as it is now."""
    kept = checkpoint.with_name("as-it-was")
    shutil.copytree(checkpoint, kept)

    def copy() -> None:
        shutil.rmtree(checkpoint)
        shutil.copytree(kept, checkpoint)

    return copy


def content(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def found(checkpoint: Path, by: Callable[[reading.Checkpoint], Iterable[Finding]] = fsck) -> list[Finding]:
    with reading.open(checkpoint) as opened:
        return list(by(opened))


def require_whole(checkpoint: Path, before: dict[str, bytes]) -> None:
    """All that was there still is, and whatever else is there belongs to a savepoint, or is named by `fsck`.

    The files with which somebody may be beginning or finishing a savepoint right now are named an hour later.
    """
    for pattern in (".*", "*.begun.json"):
        for file in checkpoint.glob(f"binshift/savepoints/{pattern}"):
            os.utime(file, (1, 1))
    now, findings = content(checkpoint), found(checkpoint, fsck_savepoints)
    assert {path: now.get(path) for path in before} == before
    assert [f for f in findings if f.severity is not Severity.ORPHAN] == []
    made = savepoints.of(checkpoint)
    # An unfinished one is named by the file with which it has begun.
    parts = {s.path if s.is_finished else f"binshift/savepoints/.{s.id}.json" for s in made}
    named = parts | {f.where for f in findings}
    folders = tuple(f"{folder}/" for folder in named | {s.folder for s in made})
    assert [path for path in now.keys() - before.keys() - named if not path.startswith(folders)] == []


def drop_all(checkpoint: Path) -> None:
    for savepoint in savepoints.of(checkpoint):
        savepoints.drop(checkpoint, savepoint.name)


#: The matrix has each instant, and other runs some of them.
EVERY = pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.matrix)])


@EVERY
def test_whoever_makes_a_savepoint_may_end_at_any_instant(checkpoint, every):
    before = content(checkpoint)
    make = partial(savepoints.create, checkpoint, "kept")
    for _ in killed_at_changes(make, again(checkpoint), every):
        require_whole(checkpoint, before)
        drop_all(checkpoint)
        assert make().is_finished
        savepoints.drop(checkpoint, "kept")
        assert content(checkpoint) == before


@EVERY
def test_whoever_drops_a_savepoint_may_end_at_any_instant(checkpoint, every):
    before = content(checkpoint)
    savepoints.create(checkpoint, "kept")
    for _ in killed_at_changes(partial(savepoints.drop, checkpoint, "kept"), again(checkpoint), every):
        require_whole(checkpoint, before)
        drop_all(checkpoint)
        savepoints.create(checkpoint, "kept")
        savepoints.drop(checkpoint, "kept")
        assert content(checkpoint) == before


@EVERY
def test_whoever_forks_may_end_at_any_instant(checkpoint, every):
    before = content(checkpoint)
    fork = checkpoint.with_name("fork")
    savepoints.create(checkpoint, "kept")
    make = partial(savepoints.fork, checkpoint, fork, savepoint="kept")
    make()
    assert found(fork) == []
    assert differences(checkpoint, fork) == 0
    whole = content(fork)
    for _ in killed_at_changes(make, partial(shutil.rmtree, fork), every):
        require_whole(checkpoint, before)
        make()
        assert content(fork) == whole | {"metadata": (fork / "metadata").read_bytes()}


def test_what_is_left_of_forks_that_were_cut_short_is_named_and_deleted_later(checkpoint, monkeypatch):
    before = content(checkpoint)
    fork = checkpoint.with_name("fork")
    make = partial(savepoints.fork, checkpoint, fork)
    # In the midst of copying.
    middle = changes_of(make) // 2
    shutil.rmtree(fork)
    for n in (middle, middle + 3):
        assert is_killed(make, n)
        require_whole(checkpoint, before)
    there = savepoints.of(checkpoint)
    assert [s.is_finished for s in there] == [True, True]
    with monkeypatch.context() as patch:
        patch.setattr("binshift.control.savepoints._MOST_FORK_TIME", timedelta(0))
        assert {f.where for f in found(checkpoint, fsck_savepoints)} >= {s.path for s in there}
        savepoints.create(checkpoint, "kept")
    assert [s.name for s in savepoints.of(checkpoint)] == ["kept"]
    savepoints.drop(checkpoint, "kept")
    assert content(checkpoint) == before


def test_a_savepoint_is_finished_although_somebody_sweeps_right_then(checkpoint):
    """It has two files for an instant, and counts as dropped once the one that it has begun with is gone."""
    there = Savepoints(Files(checkpoint))
    begun = there.begin("kept", 1)
    finished = replace(begun, files={})
    (checkpoint / finished.path).write_bytes(finished.to_json())
    savepoints.create(checkpoint, "other")
    assert there.finish(begun, {}, []) == finished
    # If its maker is killed right then, what it has left goes later.
    (checkpoint / begun.path).write_bytes(begun.to_json())
    os.utime(checkpoint / begun.path, (1, 1))
    assert [s.name for s in there.all() if s.is_finished] == ["kept", "other"]
    savepoints.create(checkpoint, "third")
    assert not (checkpoint / begun.path).exists()


def meanwhile(monkeypatch, do):
    """Has something happen while a fork copies."""
    bring = copying._Copying._bring

    def interrupted(*args, **kwargs):
        do()
        return bring(*args, **kwargs)

    monkeypatch.setattr(copying._Copying, "_bring", interrupted)


def test_a_fork_that_another_one_has_replaced_leaves_the_target_to_it(checkpoint, monkeypatch):
    fork = checkpoint.with_name("fork")
    marker = fork / "binshift-copy.json"
    meanwhile(monkeypatch, lambda: marker.write_text('{"savepoint": "other", "copy": "another"}'))
    with pytest.raises(ConfigurationError, match=r"something else copies to .*fork as well"):
        savepoints.fork(checkpoint, fork)
    assert "another" in marker.read_text()
    assert not list(fork.glob("commits/*"))


def test_a_query_that_was_started_on_a_fork_too_early_leaves_nothing_in_it(checkpoint, monkeypatch):
    fork = checkpoint.with_name("fork")
    left = [fork / name for name in (".metadata.crc", "offsets/999", "offsets/.999.crc")]
    meanwhile(monkeypatch, lambda: [f.write_bytes(b"of a start that was refused") for f in left])
    savepoints.fork(checkpoint, fork)
    assert not [f for f in left if f.exists()]
    assert found(fork) == []
