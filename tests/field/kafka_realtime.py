"""Like `kafka_commanded.py`, in real-time mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.commanded import serve
from field.kafka_commanded import KafkaCommands
from harness import real_time_session, until


class RealTimeKafkaCommands(KafkaCommands):
    trigger: ClassVar[dict[str, str]] = {"realTime": "5 seconds"}

    def report(self) -> dict[str, Any]:
        """Waits for a whole batch without rows, and reports."""
        last = self._committed()
        assert until(lambda: self._committed() >= last + 2, 120), self.run.query.exception()
        offsets = [source["endOffset"] for p in self.run.query.recentProgress[-1:] for source in [p.sources[0]]]
        self.run.query.stop()
        # In real-time mode, Spark sets this for the query only.
        self.run.spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
        return {
            "state": [[key[0], value[0]] for key, value in self.run.state()],
            "offsets": offsets,
        }

    def partitions(self) -> int:
        return int(self.run.attach().routing().partitions)

    def _committed(self) -> int:
        return max((int(f.name) for f in (self.run.checkpoint / "commits").glob("[0-9]*")), default=-1)


if __name__ == "__main__":
    serve(RealTimeKafkaCommands, real_time_session)
