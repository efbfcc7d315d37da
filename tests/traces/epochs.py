"""Epochs are logged and committed, and the logs wound back."""

from __future__ import annotations

from traces.books import Part, WrongError
from traces.events import Event, Store


class Epochs(Part):
    """Each epoch is logged once and committed once, under the entry that the logs name."""

    def epoch(self, e: Event) -> None:
        h, epoch, record = self.h, e["epoch"], e["logged_at"]
        if epoch < len(h.offsets) and h.offsets[epoch].record != record:
            if (epoch, record) in self.life.lost:
                return  # A driver that wakes up: its epoch cannot be committed any more.
            raise WrongError(f"epoch {epoch} is logged anew")
        if epoch > len(h.offsets):
            if epoch != h.taken_over_at:
                raise WrongError(f"epoch {epoch} is logged after epoch {len(h.offsets) - 1}")
            self.stock(epoch)
        if epoch == len(h.offsets):
            self.log(epoch, record, e.get("named"), e["partitions"])
        log = h.offsets[epoch]
        if log.named != e.get("named") and log.named is not None:
            raise WrongError(f"epoch {epoch} was logged with {log.named}")
        log.named, log.partitions = e.get("named"), e["partitions"]
        h.changed()
        self._commit(e, epoch)
        table = h.tables.get(e["entry"])
        if table is None or e["entry"] not in h.entries:
            raise WrongError(f"{e['entry']} is in force, and not there")
        if table.partitions != e["partitions"]:
            raise WrongError(f"epoch {epoch} has {e['partitions']} partitions, its table {table.partitions}")
        if (there := h.named(epoch)) != e["entry"]:
            raise WrongError(f"{e['entry']} is in force at epoch {epoch}, and the logs name {there}")

    def _commit(self, e: Event, version: int) -> None:
        """An epoch that is planned tells that the one before is committed, and with which ids."""
        h = self.h
        ids = {int(op): of for op, of in e.get("ids", {}).items()}
        if h.commits < version - 1:
            raise WrongError(f"epoch {version - 1} counts as committed, and only {h.commits} are")
        if version == 0 or version <= h.taken_over_at:
            return
        log = h.offsets[version - 1]
        if h.commits >= version:
            if h.format == 2 and log.ids is not None and log.ids != ids:
                raise WrongError(f"epoch {version - 1} is committed with {ids}, and was with {log.ids}")
            return
        log.ids = ids
        h.commits = version
        h.oldest = max(h.oldest, version - h.retained + 1)
        h.changed()
        made = {(f.store.operator, f.store.partition): f for f in self.life.attempts if f.version == version}
        for partition in range(log.partitions):
            for operator in {op for op, _ in made} | set(ids):
                self._of_attempt(operator, partition, version)

    def _of_attempt(self, operator: int, partition: int, version: int) -> None:
        h = self.h
        of = [
            f
            for f in self.life.attempts
            if (f.version, f.store.operator, f.store.partition) == (version, operator, partition)
        ]
        if h.format == 1:
            if not of:
                raise WrongError(f"nobody has committed version {version} of {operator}/{partition}")
            return
        for store in {f.store for f in of} or {Store(operator, partition, "default")}:
            id = h.committed_id(store, version)
            if not any(f.id == id and f.store == store for f in of):
                raise WrongError(f"version {version} of {store} is committed with {id}, which nobody has made")

    def wound_back(self, e: Event) -> None:
        if self.life.history is None:
            return
        h = self.h
        for epoch, log in enumerate(h.offsets[e["offsets"] :], e["offsets"]):
            self.life.lost.add((epoch, log.record))
        del h.offsets[e["offsets"] :]
        h.commits = min(h.commits, e["commits"])
        for log in h.offsets[h.commits :]:
            log.ids = None
        h.changed()
