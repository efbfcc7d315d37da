"""Requests that another process leaves in a query's checkpoint, and the answers that it finds there."""

import json
import os
import uuid

from harness import until


class Mailbox:
    """The other process; it only needs the checkpoint's directory."""

    def __init__(self, run):
        self.requests = run.checkpoint / "binshift" / "requests"
        self.answers = run.checkpoint / "binshift" / "answers"
        self.requests.mkdir(parents=True, exist_ok=True)
        self.written = 0

    def put(self, text, id=None):
        id = id or str(uuid.uuid4())
        temporary = self.requests / f".{id}.tmp"
        temporary.write_text(text)
        # Requests are served in the order of these times, which otherwise may be equal.
        self.written += 1
        os.utime(temporary, (self.written, self.written))
        os.replace(temporary, self.requests / f"{id}.json")
        return id

    def ask(self, kind, id=None, **fields):
        id = id or str(uuid.uuid4())
        return self.put(json.dumps({"format": 1, "id": id, "kind": kind, **fields}), id)

    def submit(self, plan, **fields):
        options = {"start_epoch": None, "prepare": False, "place_on": [], "vacate": None}
        return self.ask("submit", plan=json.loads(plan.to_json()), options=options, **fields)

    def wait(self):
        """Waits, while the query has no data, until all requests are answered."""
        assert until(lambda: not [f for f in self.requests.glob("*.json") if not f.name.startswith("_")])

    def answer(self, id):
        answer = json.loads((self.answers / f"{id}.json").read_text())
        assert answer["format"] == 1
        assert answer["id"] == id
        assert not (self.requests / f"{id}.json").exists()
        return answer

    def result(self, id):
        return self.answer(id)["result"]

    def error(self, id):
        return self.answer(id)["error"]
