"""Snapshots are uploaded, and files are deleted."""

from __future__ import annotations

from model.executors import is_lost
from model.recovery import first_logged, needed
from model.state import PerBin, Snapshot, Upload
from traces.books import Part, WrongError
from traces.events import Event, VersionFile, version_file


class Files(Part):
    """No file that a retained version needs is deleted, and no snapshot of a lost epoch is uploaded."""

    def uploads(self, e: Event) -> None:
        h, version, store = self.h, e["version"], e.own
        file = VersionFile(store, version, e.get("id"), is_snapshot=True)
        self.life.begun.add(file)
        record = self.life.records.get((e.process, store, version))
        c = h.checkpoint(None, 0)
        if record is None or version - 1 < first_logged(h.rules(0), c):
            return  # The task has not committed yet, or Spark has purged the epoch from its log.
        snapshot = Snapshot(store.partition, version, None, PerBin((None,)), None)
        if is_lost(h.rules(0), c, Upload("queued", 0, record, snapshot)):
            raise WrongError(f"a snapshot of version {version} is uploaded, and its epoch was lost")

    def uploaded(self, e: Event) -> None:
        file = VersionFile(e.own, e["version"], e.get("id"), is_snapshot=True)
        if file in self.life.attempts and (e.process, e.own, file.version) in self.life.records:
            self.h.snapshots[file] = self.life.attempts[file]
            self.h.files_changed()
        else:
            self.life.early[file] = e

    def deletes(self, e: Event) -> None:
        h = self.h
        for path in e.get("kept", []):
            if (file := version_file(path)) is not None:
                self.must_be_there(file)
        files = [f for path in e["files"] if (f := version_file(path)) is not None]
        for deleted in files:
            self.must_be_there(deleted)
        for store in {f.store for f in files}:
            gone = {f for f in files if f.store == store}
            for alike in h.classes(range(h.bins)):
                kept = needed(h.rules(alike[0]), h.checkpoint(store, alike[0]), store.partition)
                if kept is None:
                    raise WrongError(f"a retained version of bins {alike} cannot be recovered any more")
                for needs in kept:
                    read = VersionFile(store, needs.version, needs.id, isinstance(needs, Snapshot))  # type: ignore[arg-type]
                    if read in gone:
                        raise WrongError(f"{read} is deleted, and a retained version of bins {alike} needs it")
        for deleted in files:
            h.snapshots.pop(deleted, None)
            h.changelogs.pop(deleted, None)
        h.files_changed()
