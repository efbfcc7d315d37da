"""A query that counts rows by key, in a session of any kind: from files to a table in memory."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4


class Counting:
    """The query, its input, and its counts; Python computes the expected counts."""

    def __init__(self, session: Any, root: Path, name: str | None = None) -> None:
        self.session = session
        self.name = name or f"counts_{uuid4().hex}"
        self.root = root
        self.source, self.checkpoint = root / "source", root / "checkpoint"
        self.source.mkdir(parents=True, exist_ok=True)
        self.expected = Counter[str]()
        self.query: Any = None

    def start(self) -> Counting:
        frame = (
            self.session.readStream.schema("k string").option("maxFilesPerTrigger", 1).json(str(self.source))
        )
        writer = (
            frame.groupBy("k").count().writeStream.outputMode("complete").format("memory").queryName(self.name)
        )
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        return self

    def feed(self) -> None:
        """Writes a file, and doesn't wait for its epoch."""
        n = len(list(self.source.iterdir()))
        keys = [f"key{(i * 7 + n) % 30}" for i in range(40)]
        self.expected.update(keys)
        (self.root / "next").write_text("\n".join(json.dumps({"k": k}) for k in keys))
        os.replace(self.root / "next", self.source / f"{n}.json")

    def run(self, epochs: int = 1) -> None:
        """Feeds a number of files, one after the other, and waits for each."""
        for _ in range(epochs):
            self.feed()
            self.query.processAllAvailable()

    def counted(self) -> dict[str, int]:
        return {r.k: r["count"] for r in self.session.table(self.name).collect()}
