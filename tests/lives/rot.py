"""Snapshots that are damaged for a while, although nobody relies on them yet."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from lives.events import Rot
from local.migrations import END_OF_SST, flipped, own_files


class Rotten:
    """What was damaged last, and what it was before."""

    def __init__(self, checkpoint: Path) -> None:
        self._state = checkpoint / "state"
        self._until = 0
        #: What each damaged file was, and what it is since; `None` if it is gone.
        self._files: dict[Path, tuple[bytes, bytes | None]] = {}

    def begin(self, rot: Rot, last: int, retained: int) -> None:
        """Damages snapshots after epoch `last`, while no epoch is under way."""
        self.mend()
        rng = random.Random(rot.chance)
        self._until = last + rot.epochs
        # A cleanup deletes what lies before the snapshots of the oldest retained version, and doesn't see a
        # wrong end. So these are newer, and for as long as they are damaged.
        first = last + 3 - retained + (rot.epochs if rot.form == "end" else 0)
        for store in sorted({zip_.parent for zip_ in self._state.glob("*/*/**/*.zip")}):
            # A cleanup may be under way.
            with contextlib.suppress(FileNotFoundError):
                if rng.random() < 0.5:
                    self._damage(store, first, rot.form)

    def committed(self, epoch: int) -> None:
        if epoch >= self._until:
            self.mend()

    def mend(self) -> None:
        """Gives each file its content back, unless it was deleted or made anew since."""
        for file, (was, since) in self._files.items():
            if since == (file.read_bytes() if file.exists() else None):
                file.write_bytes(was)
        self._files.clear()

    def _damage(self, store: Path, first: int, form: str) -> None:
        newest, before = _replaceable(store)
        if newest is None or before is None or int(newest.stem) < first:
            return
        if form in ("empty", "cut"):
            content = newest.read_bytes()
            self._write(newest, content[: len(content) // 2 if form == "cut" else 0])
            return
        for sst in own_files(newest, of_none_in=before):
            self._write(sst, None if form == "gone" else flipped(sst.read_bytes(), END_OF_SST))

    def _write(self, file: Path, content: bytes | None) -> None:
        self._files[file] = file.read_bytes(), content
        # Hadoop's checksum would say otherwise, now or when the file is mended.
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)


def _replaceable(store: Path) -> tuple[Path | None, Path | None]:
    """A store's newest snapshot and the one before, if changelogs lead from that one to the newest version."""
    versions = sorted(int(zip_.stem) for zip_ in store.glob("*.zip") if zip_.stem.isdigit())[-2:]
    if len(versions) < 2:
        return None, None
    newest = max([versions[1], *(int(f.stem) for f in store.glob("*.changelog") if f.stem.isdigit())])
    if not all((store / f"{v}.changelog").exists() for v in range(versions[0] + 1, newest + 1)):
        return None, None
    return store / f"{versions[1]}.zip", store / f"{versions[0]}.zip"
