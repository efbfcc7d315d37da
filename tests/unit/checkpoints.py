"""Checkpoints written by hand in the driver's formats, and a stand-in for the driver that answers requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from binshift import MigrationPlan, RoutingTable

#: The routing table that most of these checkpoints use.
TWO = RoutingTable(2, (0, 1) * 4)


class HandWritten:
    """A checkpoint of a counting query with 8 bins, at whatever epoch the test wants."""

    def __init__(self, root: Path, table: RoutingTable, committed: int) -> None:
        self.root = root
        self.newest = -1
        for folder in ("offsets", "commits", "binshift/routing"):
            (root / folder).mkdir(parents=True)
        operators = [{"id": 0, "name": "stateStoreSave", "storage": "binned"}]
        facts = {
            "bins": table.bins,
            "requested_bins": table.bins,
            "hash": "murmur3-42",
            "spark_version": "4.3.0",
        }
        self.write("binshift/layout.json", {"format": 1, **facts, "operators": operators})
        self.enter(table, 0)
        self.commit(committed)

    def write(self, name: str, data: Any) -> None:
        file = self.root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(data))

    def commit(self, epoch: int) -> None:
        for folder in ("offsets", "commits"):
            (self.root / folder / str(epoch)).write_text("v1\n{}")
            (self.root / folder / f".{epoch}.crc").write_text("")

    def enter(self, table: RoutingTable, epoch: int, step: dict[str, Any] | None = None) -> None:
        entry = {"epoch": epoch, "partitions": table.partitions, "assignment": table.assignment}
        time = {"written_at": f"2026-01-01T00:00:00.{epoch:03}Z", "previous": self.newest}
        self.newest = epoch
        self.write(
            f"binshift/routing/{epoch}", {"format": 1, **entry, **time, **({"step": step} if step else {})}
        )

    def under_way(self, plan: MigrationPlan, id: str = "m-1", cancelled: bool = False, **options: Any) -> Path:
        how = {"prepare": True, "place_on": [], **options}
        data = {"id": id, "options": how, "cancelled": cancelled, "plan": json.loads(plan.to_json())}
        self.write(f"binshift/plans/{id}.json", {"format": 1, **data})
        return self.root / f"binshift/plans/{id}.json"

    def take(
        self, plan: MigrationPlan, first_epoch: int, id: str = "m-1", steps: int | None = None, done: int = 0
    ) -> None:
        """Carries out steps of the plan, one per epoch, and commits each; the first `done` ones are there."""
        for i, table in list(enumerate(plan.tables()))[done:steps]:
            step = {"migration_id": id, "index": i, "steps": len(plan.steps), "strategy": plan.strategy}
            moves = len(plan.steps[i].moves)
            self.enter(table, first_epoch + i, {**step, "moves": moves, "opening": False})
            self.commit(first_epoch + i)

    def requests(self) -> list[dict[str, Any]]:
        files = sorted((self.root / "binshift/requests").glob("[!.]*.json"))
        return [json.loads(f.read_text()) for f in files]


class Answering:
    """Answers requests while it is entered, as the driver does when it plans an epoch."""

    def __init__(self, checkpoint: HandWritten, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.checkpoint, self.answer = checkpoint, answer
        self.seen: list[dict[str, Any]] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        answers = self.checkpoint.root / "binshift/answers"
        answers.mkdir(exist_ok=True)
        while not self.over.wait(0.02):
            for request in self.checkpoint.requests():
                self.seen.append(request)
                body = {"format": 1, "id": request["id"], "epoch": 9, **self.answer(request)}
                hidden = answers / f".{request['id']}.json"
                hidden.write_text(json.dumps(body))
                # Hadoop's local file system has a checksum beside each file.
                (answers / f".{request['id']}.json.crc").touch()
                hidden.rename(answers / f"{request['id']}.json")
                (self.checkpoint.root / f"binshift/requests/{request['id']}.json").unlink()

    def __enter__(self) -> Answering:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()


def cluster(request: dict[str, Any]) -> dict[str, Any]:
    """The answer of a query on executors 1, 2 and 3; executor 3 has just joined, and bin 0 has most rows."""
    if request["kind"] == "placement":
        return {"result": {"executors": ["1", "2", "3"], "partitions": [["1"], ["2"]]}}
    if request["kind"] == "stats":
        numbers = {"reads": [0] * 8, "writes": [50, 10, 10, 10, 10, 10, 0, 0], "bytes": [100] * 8}
        return {"result": {"epoch": 5, "columns": {"bin": list(range(8)), **numbers, "keys": [1] * 8}}}
    return {"result": {"migration_id": request["id"]}}


def alone(*executors: object) -> dict[str, Any]:
    """The answer of a query that has all of its partitions on executor 1."""
    return {"result": {"executors": [str(e) for e in executors], "partitions": [["1"], ["1"]]}}
