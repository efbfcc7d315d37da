"""A life as a trace has it, made in memory: two partitions exchange their bins, and the driver is replaced."""

from __future__ import annotations

from typing import Any

CHECKPOINT = "/checkpoint"
DRIVER, NEXT, EXECUTOR = "driver-1", "driver-2", "0-3"
FIRST, STEP = "0:000000aa", "2:000000bb"
OWNERS = {FIRST: [0, 0, 1, 1], STEP: [1, 1, 0, 0]}
BINS = {FIRST: ["0-1", "2-3"], STEP: ["2-3", "0-1"]}

Line = dict[str, Any]


class Writer:
    """Writes lines as processes do."""

    def __init__(self, format: int) -> None:
        self.format = format
        self.lines: list[Line] = []

    def write(self, process: str, event: str, store: int | None = None, **values: Any) -> None:
        folder = CHECKPOINT if store is None else f"{CHECKPOINT}/state/0/{store}"
        n = len(self.lines)
        told = {key: value for key, value in values.items() if value is not None}
        self.lines.append({"t": 1000 + n, "n": n, "process": process, "event": event, "dir": folder, **told})

    def id(self, partition: int, version: int) -> str | None:
        return f"attempt-{partition}-{version}" if self.format == 2 and version > 0 else None

    def ids(self, version: int) -> dict[str, list[list[str]]]:
        return {"0": [[self.id(p, version)] for p in (0, 1)]} if self.format == 2 and version > 0 else {}  # type: ignore[list-item]

    def entry(self, process: str, run: str, name: str, previous: str | None) -> None:
        owners = OWNERS[name]
        step: dict[str, Any] = {"migration": "m", "step": 0, "opening": False} if previous else {}
        self.write(
            process, "entry", entry=name, previous=previous, run=run, partitions=2, owners=owners, **step
        )

    def begin(self, process: str, run: str, number: int, epoch: int, entry: str) -> None:
        self.write(
            process,
            "run claims",
            run=run,
            number=number,
            epoch=epoch,
            logged_at=100 + epoch,
            entry=entry,
            again=False,
            bins=4,
            real_time=False,
            retained=2,
            format=self.format,
        )
        if epoch == 0:
            self.entry(process, run, entry, None)
        self.write(process, "run claimed", run=run, number=number)
        self.write(process, "run begun", run=run, epoch=epoch)

    def epoch(self, process: str, run: str, epoch: int, entry: str, named: str | None) -> None:
        self.write(
            process,
            "epoch",
            run=run,
            epoch=epoch,
            logged_at=100 + epoch,
            named=named,
            entry=entry,
            partitions=2,
            again=False,
            ids=self.ids(epoch),
        )

    def opened(self, run: str, partition: int, version: int, base: int) -> None:
        id, base_id = self.id(partition, version), self.id(partition, base)
        self.write(EXECUTOR, "opened", partition, run=run, version=version, id=id, base=base, base_id=base_id)

    def task(self, run: str, partition: int, epoch: int, entry: str) -> None:
        self.write(
            EXECUTOR,
            "loaded",
            partition,
            run=run,
            version=epoch,
            id=self.id(partition, epoch),
            reads=False,
            entry=entry,
            logged_at=100 + epoch,
            bins=BINS[entry][partition],
            takeover=False,
        )
        version = epoch + 1
        id = self.id(partition, version)
        self.write(EXECUTOR, "committed", partition, run=run, version=version, id=id, changelog=True)

    def snapshot(self, partition: int, version: int) -> None:
        id = self.id(partition, version)
        self.write(EXECUTOR, "uploads", partition, version=version, id=id)
        self.write(EXECUTOR, "uploaded", partition, version=version, id=id)

    def deletes(self, partition: int, before: int) -> None:
        names = [
            f"{v}{'' if (id := self.id(partition, v)) is None else f'_{id}'}.changelog"
            for v in range(1, before)
        ]
        files = [f"{CHECKPOINT}/state/0/{partition}/{name}" for name in names]
        self.write(EXECUTOR, "deletes", partition, before=before, files=files, kept=[])


def life(format: int) -> list[Line]:
    """All of it is right."""
    w = Writer(format)
    w.begin(DRIVER, "r1", 1, 0, FIRST)
    w.epoch(DRIVER, "r1", 0, FIRST, None)
    for p in (0, 1):
        w.opened("r1", p, 0, 0)
        w.task("r1", p, 0, FIRST)
    w.write(DRIVER, "plan", migration="m", file="plans/m.json", cancelled=False)
    w.entry(DRIVER, "r1", STEP, FIRST)
    w.epoch(DRIVER, "r1", 1, FIRST, FIRST)
    for p in (0, 1):
        w.task("r1", p, 1, FIRST)
    w.epoch(DRIVER, "r1", 2, STEP, STEP)
    attempt = w.id(1, 1)
    copied = {"from": 1, "bins": "2-3", "way": "copied ahead", "again": False, "base": 1, "up_to": 2}
    w.write(EXECUTOR, "arrived", 0, version=2, attempt=attempt, **copied)
    w.write(EXECUTOR, "switched", 0, version=2, left="0-1")
    w.task("r1", 0, 2, STEP)
    w.write(EXECUTOR, "arrived", 1, version=2, way="checkpoint", bins="0-1", **{"from": 0})
    w.write(EXECUTOR, "recovery", 0, version=2, bases=[], stretches=[[0, 1, 2, "0-1"]])
    w.write(EXECUTOR, "switched", 1, version=2, left="2-3")
    w.task("r1", 1, 2, STEP)
    # The driver dies, and another one goes on, whose executor begins with the checkpoint.
    w.begin(NEXT, "r2", 2, 3, STEP)
    w.epoch(NEXT, "r2", 3, STEP, None)
    for p in (0, 1):
        other = BINS[STEP][p]
        w.write(
            EXECUTOR,
            "recovery",
            p,
            version=3,
            held=0,
            bases=[],
            stretches=[[1 - p, 1, 2, other], [p, 3, 3, other]],
        )
        w.opened("r2", p, 3, 0)
        w.task("r2", p, 3, STEP)
        w.snapshot(p, 4)
    w.write(NEXT, "plan forgotten", migration="m", file="plans/m.json")
    w.epoch(NEXT, "r2", 4, STEP, STEP)
    for p in (0, 1):
        w.task("r2", p, 4, STEP)
        w.snapshot(p, 5)
    w.epoch(NEXT, "r2", 5, STEP, STEP)
    for p in (0, 1):
        w.task("r2", p, 5, STEP)
        w.deletes(p, 4)
    return w.lines
