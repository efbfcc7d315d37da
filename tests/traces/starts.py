"""Runs begin, and routing entries are written and pruned."""

from __future__ import annotations

from model.recovery import oldest_entry
from model.start import _in_force as in_force_at_start
from model.start import newest_claim
from model.state import Checkpoint, Driver, PerBin, Snapshot
from traces.books import Part, WrongError
from traces.events import Event
from traces.history import STOCK, History, Place, Table
from traces.plans import Plans


class Starts(Part):
    """A run looks, claims its place and begins; routing entries are written before anything names them."""

    def entry(self, e: Event) -> None:
        h = self.h
        step = (e["migration"], e["step"]) if "migration" in e.values else None
        table = Table(e["entry"], e.get("previous"), e["run"], e["partitions"], tuple(e["owners"]), step)
        if table.name in h.tables and h.tables[table.name] != table:
            raise WrongError("an entry is written once more, and as another one")
        if table.previous is not None and table.previous not in h.tables:
            raise WrongError("an entry follows one that nobody has written")
        Plans(self.life).step(e, table)
        h.tables[table.name] = table
        h.entries.add(table.name)
        h.forget_rules()

    def deletes_entries(self, e: Event) -> None:
        h = self.h
        gone = set(e["entries"])
        if e.get("withdrawn"):
            named = {o.named for o in h.offsets} | {c.entry for c in h.claims}
            if gone & named:
                raise WrongError(f"{gone & named} is taken back, and an epoch was logged with it")
        else:
            since = oldest_entry(h.rules(0), self._with_all_files())
            late = [g for g in gone if since is not None and int(g.split(":")[0]) >= since.epoch]
            if late:
                raise WrongError(f"{late} are deleted, and {since} is in force at the oldest version")
        h.entries -= gone
        h.changed()

    def _with_all_files(self) -> Checkpoint:
        """A checkpoint with the files of all stores, in which only their versions matter."""
        files = {*self.h.changelogs, *self.h.snapshots}
        none = PerBin((None,))
        snapshots = frozenset(Snapshot(f.store.partition, f.version, None, none, None) for f in files)
        return self.h.checkpoint(None, 0)._replace(snapshots=snapshots)

    def claims(self, e: Event) -> None:
        if self.life.history is None:
            taken_over = e.get("taken_over_at", 0)
            if e["epoch"] != taken_over:
                self.life.why_unchecked = "its beginning is not in the trace"
                return
            self.life.history = History(e["format"], e["bins"], e["retained"], taken_over)
            self.stock(taken_over)
        # The query may be wound back to where Spark's provider ran it, and be taken over once more.
        self.h.taken_over_at = e.get("taken_over_at", 0)
        if e.get("real_time"):
            self.life.why_unchecked = "it is in real-time mode"
            return
        h = self.h
        if h.format != e["format"] or h.retained != e["retained"]:
            self.life.why_unchecked = "its format or its retention changes"
            return
        epoch = e["epoch"]
        why = None
        if h.tables and (len(h.offsets) - 1 > epoch or h.commits > epoch):
            why = "a run begins that was behind when it claimed its place"
        elif h.tables and epoch > h.taken_over_at:
            # An epoch that the run has logged itself is reported once the run plans it.
            c = h.checkpoint(None, 0)
            if len(c.offsets) == epoch:
                table = h.tables.get(e["entry"])
                n = table.partitions if table else 0
                self.log(epoch, e.get("logged_at") or STOCK, None, n)
                c = h.checkpoint(None, 0)
            d = Driver(h.run(e["run"]), "look", epoch, record=e.get("logged_at"))
            allowed = {h.entry_of(n) for n in in_force_at_start(h.rules(0), c, d)}
            # The name in the log is told once the epoch is planned.
            if e["entry"] not in {*allowed, h.named(epoch)}:
                why = f"a run begins under {e['entry']}, and the logs lead to {allowed}"
        self.life.starting[e["run"]] = (e, why)

    def claimed(self, e: Event) -> None:
        h, number = self.h, e["number"]
        if self.life.claimants.setdefault(number, e["run"]) != e["run"]:
            raise WrongError(f"claim {number} is another run's")
        if h.claims and number <= newest_claim(h.checkpoint(None, 0)):
            raise WrongError(f"claim {number} is not the newest")
        claim, _ = self.life.starting[e["run"]]
        if claim["entry"] not in h.tables:
            raise WrongError("a claim names an entry that nobody has written")
        h.claims.append(
            Place(number, e["run"], claim["epoch"], claim.get("logged_at") or STOCK, claim["entry"])
        )
        h.changed()

    def begun(self, e: Event) -> None:
        why = self.life.starting[e["run"]][1]
        if why is not None:
            raise WrongError(why)
