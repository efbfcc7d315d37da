"""Stores are loaded, get bins and lose some, and are committed."""

from __future__ import annotations

from model.recovery import expected, recovered
from traces.books import Instance, Part, WrongError
from traces.events import Event, Store, VersionFile, bins
from traces.history import OF_ANOTHER_ATTEMPT, STOCK, Made, Rows


class Loads(Part):
    """A task loads what all epochs before have left, of each bin that its partition owns."""

    def _key(self, e: Event) -> tuple[str, str, Store]:
        return e.process, e["run"], e.own

    def opened(self, e: Event) -> None:
        h, version, store = self.h, e["version"], e.own
        instance = Instance(version, e.get("id"), {}, is_new=True)
        # A late task of an earlier run may still use its own instance, but this is the newest one.
        self.life.instances.pop(self._key(e), None)
        self.life.instances[self._key(e)] = instance
        self.life.awaited.pop((e.process, store), None)
        if e.get("empty"):
            return
        base = VersionFile(store, e.get("base", 0), e.get("base_id"), is_snapshot=True)
        if base.version > 0 and base.version > h.taken_over_at:
            self.must_be_there(base)
            if base not in h.snapshots:
                raise WrongError(f"it begins with {base}, which is not there")
            wanted = h.committed_id(store, base.version)
            if h.format == 2 and base.id != wanted:
                raise WrongError(f"it begins with the snapshot of {base.id}, and {wanted} was committed")
        is_binned = version == 0 or version > h.taken_over_at
        table = h.table(max(version - 1, 0)) if is_binned else None
        if table is not None:
            owned = [b for b, owner in enumerate(table.owners) if owner == store.partition]
            for alike in h.classes(owned):
                rows = self._recovered(store, alike[0], version)
                if rows is None:
                    raise WrongError(f"bins {alike} of version {version} cannot be recovered")
                instance.rows.update(dict.fromkeys(alike, rows))

    def _recovered(self, store: Store, bin: int, version: int) -> Rows | None:
        """Has the model recover the bin, and translates the result into attempts."""
        h = self.h
        rules, c = h.rules(bin), h.checkpoint(store, bin)
        found = recovered(rules, c, h.tables_at(version - 1, bin, store), bin=0, version=version)
        if found is None:
            return None
        return tuple(
            Made(record, owner, v + 1, h.committed_id(store.peer(owner), v + 1))
            if record != OF_ANOTHER_ATTEMPT
            else Made(record, owner, v + 1, "another attempt")
            for v, record in enumerate(found)
            for owner in [self._owner(bin, v)]
        )

    def _owner(self, bin: int, epoch: int) -> int:
        table = self.h.table(epoch)
        return -1 if table is None else table.owners[bin]

    def recovery(self, e: Event) -> None:
        """Each bin begins with a committed snapshot of its owner, and has its owner's changes since then."""
        h, version = self.h, e["version"]
        reached: dict[int, int] = {}
        for partition, at, of in e["bases"]:
            file = VersionFile(
                e.own.peer(partition), at, h.committed_id(e.own.peer(partition), at), is_snapshot=True
            )
            self.must_be_there(file)
            if file not in h.snapshots and at > h.taken_over_at:
                raise WrongError(f"a recovery begins with {file}, which is not there")
            for bin in bins(of):
                if self._owner(bin, at - 1) != partition and at > h.taken_over_at:
                    raise WrongError(
                        f"bin {bin} of version {at} is recovered from {partition}, which hasn't got it"
                    )
                reached[bin] = at
        steps = [(first, last, p, bin) for p, first, last, of in e["stretches"] for bin in bins(of)]
        for first, last, partition, bin in sorted(steps):
            if first != reached.get(bin, h.taken_over_at) + 1:
                has = reached.get(bin)
                raise WrongError(f"a recovery reads bin {bin} from version {first} on, and has it as of {has}")
            for v in range(first, last + 1):
                if self._owner(bin, v - 1) != partition:
                    raise WrongError(f"bin {bin} of version {v} is read at {partition}, which hasn't got it")
            reached[bin] = last
        short = {bin: at for bin, at in reached.items() if at != version}
        if short:
            raise WrongError(f"a recovery of version {version} has bins as of others: {short}")

    def arrived(self, e: Event) -> None:
        """Bins come from the partition that had them, as it has committed them."""
        h, version, of = self.h, e["version"], bins(e["bins"])
        instance = self._instance(e)
        waits = self.life.awaited[e.process, e.own]
        # Bins that are awaited may come while later versions are loaded. They have counted as there.
        is_late = instance is not None and instance.version > version and waits.issuperset(of)
        if instance is None or (instance.version != version and not is_late):
            raise WrongError(f"bins arrive at version {version}, which is not loaded")
        if is_late and e.get("way") == "checkpoint":
            waits.difference_update(of)
            return
        if e.get("way") == "bins on demand":
            if e["base"] != version:
                raise WrongError(f"bins on demand are of version {e['base']}, and not of {version}")
            waits.difference_update(of)
            if not instance.rows.keys() >= set(of):
                raise WrongError(f"bins {of} arrive that nobody waits for")
            return
        for bin in of:
            owner = self._owner(bin, version - 1)
            if owner != e["from"]:
                raise WrongError(f"bin {bin} comes from {e['from']}, and {owner} had it")
        if e.name == "awaits":
            waits.update(of)
        self._must_be_of(e, version)
        source = e.own.peer(e["from"])
        for alike in h.classes(of):
            if e.get("way") == "checkpoint":
                rows = self._recovered(source, alike[0], version)
            else:
                rows = self._committed_rows(source, alike[0], version)
            if rows is None and not self._is_in_vain(e):
                raise WrongError(f"bins {alike} of version {version} are not in {source}")
            instance.rows.update(dict.fromkeys(alike, rows or ()))

    def _is_in_vain(self, e: Event) -> bool:
        """A driver that was replaced begins to read files that its successor no longer needs, and fails."""
        return e.get("way") == "checkpoint" and self.h.commits > int(e["version"])

    def _must_be_of(self, e: Event, version: int) -> None:
        """A copy is of the attempt that counts, and of no later version."""
        h = self.h
        if e.get("up_to", version) > version or e.get("base", 0) > version:
            raise WrongError(f"a copy is of version {e.get('up_to')}, and {version} is loaded")
        source = e.own.peer(e["from"])
        if h.format == 2 and "attempt" in e.values and e["base"] > h.taken_over_at:
            wanted = h.committed_id(source, e["base"])
            if e["attempt"] != wanted:
                raise WrongError(f"a copy is of the attempt {e['attempt']}, and {wanted} was committed")

    def _committed_rows(self, store: Store, bin: int, version: int) -> Rows | None:
        """The rows that the attempt that counts has left."""
        id = self.h.committed_id(store, version)
        attempt = self.life.attempts.get(VersionFile(store, version, id, is_snapshot=True))
        return None if attempt is None else attempt.get(bin)

    def switched(self, e: Event) -> None:
        instance = self._instance(e)
        if instance is None or instance.version != e["version"]:
            raise WrongError(f"version {e['version']} is switched, which is not loaded")
        for bin in bins(e["left"]):
            instance.rows.pop(bin, None)

    def _instance(self, e: Event) -> Instance | None:
        """The instance that the event is about; if it names no run, that of the store's latest task."""
        if "run" in e.values:
            return self.life.instances.get(self._key(e))
        of = [
            i
            for (process, _, store), i in self.life.instances.items()
            if (process, store) == (e.process, e.own)
        ]
        return of[-1] if of else None

    def _forget_later(self, process: str, store: Store, version: int) -> None:
        """Forgets later versions, which a run before this one has made in the same process."""
        later = version + 1
        while self.life.records.pop((process, store, later), None) is not None:
            later += 1

    def loaded(self, e: Event) -> None:
        h, version, store = self.h, e["version"], e.own
        instance = self._instance(e)
        if instance is None or instance.version != version:
            has = None if instance is None else instance.version
            raise WrongError(f"version {version} counts as loaded, and the store has {has}")
        instance.record = e.get("logged_at")
        self._forget_later(e.process, store, version)
        table = h.tables.get(e["entry"])
        if table is None:
            raise WrongError(f"nobody has written {e['entry']}")
        owned = [b for b, owner in enumerate(table.owners) if owner == store.partition]
        if bins(e["bins"]) != owned:
            raise WrongError(f"{store} has bins {e['bins']}, and {e['entry']} gives it {owned}")
        if e.get("takeover"):
            c = h.checkpoint(None, 0)
            stock = tuple(Made(r, store.partition, v + 1, None) for v, r in enumerate(expected(c, version)))
            instance.rows = dict.fromkeys(owned, stock)
        if not self._may_commit(version, instance.record):
            return
        if (there := h.named(version)) != e["entry"]:
            raise WrongError(f"{store} runs epoch {version} under {e['entry']}, and the logs name {there}")
        if instance.rows.keys() != set(owned):
            raise WrongError(f"{store} holds bins {sorted(instance.rows)}, and owns {owned}")
        wanted = h.committed_id(store, version)
        if h.format == 2 and not instance.is_new and owned and instance.id != wanted:
            raise WrongError(f"{store} is as attempt {instance.id} has left it, and {wanted} was committed")
        right = expected(h.checkpoint(None, 0), version)
        for alike in h.classes(owned):
            found = h.resolved(store, instance.rows[alike[0]])
            if self._stock_aside(found) != self._stock_aside(right):
                raise WrongError(f"bins {alike} are {found} at epoch {version}, and not {right}")

    def _stock_aside(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        return rows[self.h.taken_over_at :]

    def _may_commit(self, epoch: int, record: int | None) -> bool:
        """The rule of `model.epoch.may_commit`."""
        h = self.h
        return h.commits == epoch < len(h.offsets) and record in (None, h.offsets[epoch].record)

    def committed(self, e: Event) -> None:
        h, version, store, id = self.h, e["version"], e.own, e.get("id")
        instance = self._instance(e)
        if instance is None or instance.version != version - 1:
            has = None if instance is None else instance.version
            raise WrongError(f"version {version} is committed, and the store has {has}")
        record = instance.record
        if record is None and version <= len(h.offsets):
            record = h.offsets[version - 1].record
        made = Made(STOCK if record is None else record, store.partition, version, id)
        instance.rows = {bin: (*rows, made) for bin, rows in instance.rows.items()}
        instance.version, instance.id, instance.is_new = version, id, False
        attempt = VersionFile(store, version, id, is_snapshot=True)
        # Under format 1 a task of before may end late. What it writes is of no record that counts.
        is_late = h.format == 1 and version <= len(h.offsets) and made.record != h.offsets[version - 1].record
        if not is_late:
            self.life.attempts[attempt] = dict(instance.rows)
            if e["changelog"]:
                h.changelogs[VersionFile(store, version, id, is_snapshot=False)] = made.record
        self.life.records[e.process, store, version] = record
        if attempt in self.life.early:
            del self.life.early[attempt]
            h.snapshots[attempt] = dict(instance.rows)
        h.files_changed()

    def rolled_back(self, e: Event) -> None:
        self.life.instances.pop(self._key(e), None)
