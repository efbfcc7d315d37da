"""Runs workloads in one session, each from a copy of a checkpoint that was filled once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from binshift.session import BINS_KEY, CHANGELOG_KEY, PROVIDER, PROVIDER_KEY
from openloop.action import Action, Phases, Result
from openloop.resources import Others, Resources
from openloop.run import Run
from openloop.timeline import Epoch, timeline
from openloop.workload import Workload

__all__ = ["Runner"]


class Runner:
    """Runs workloads in one session, each from a copy of a checkpoint whose state was filled once."""

    def __init__(self, spark: SparkSession, scratch: Path, phases: Phases, timeout: float = 1800) -> None:
        self.spark = spark
        self.scratch = scratch
        self.phases = phases
        self.timeout = timeout
        self.resources = Resources(spark)
        self._place = scratch / "checkpoint"

    def run(
        self, load: Workload, action: Action, provider: str = PROVIDER, bins: int = 1024, verify: bool = False
    ) -> tuple[Result, pa.Table, pa.Table]:
        """The result, its epochs and the latencies of its files."""
        filled = self._filled(load, provider, bins, action.before)
        with self._copied(filled) as checkpoint:
            one = Run(self, load, action, provider, bins, checkpoint)
            try:
                return one.measured(verify)
            finally:
                one.close()

    def flat_out(
        self, load: Workload, provider: str, bins: int, partitions: int = 4
    ) -> tuple[list[Epoch], float]:
        """Runs with all of the input there at once; each epoch takes an interval.

        Returns the epochs, without the cold ones, and the part of processor time that other processes took.
        """
        filled = self._filled(load, provider, bins, partitions)
        with self._copied(filled) as checkpoint:
            source, watched = load.stream_files(self.scratch), self.watched(load)
            files = [(part, file) for part in source.parts for file in sorted(part.glob("*.parquet"))]
            for part, file in files:
                os.link(file, watched / f"{part.name}-{file.name}")
            session = self.session(provider, bins, partitions, load)
            per_epoch = len(files) // len(source.parts)
            query = self.start(
                session, load, watched, checkpoint, {"availableNow": True}, maxFilesPerTrigger=str(per_epoch)
            )
            others = Others()
            try:
                if not query.awaitTermination(self.timeout):  # type: ignore[arg-type]
                    raise TimeoutError(f"{load.name} took longer than {self.timeout} s")
            finally:
                share = others.share()
            return timeline(query)[self.phases.cold :], share

    def _filled(self, load: Workload, provider: str, bins: int, partitions: int) -> Path:
        """A checkpoint with the state, as snapshots, as maintenance leaves it in a query that runs long."""
        name = f"{load.name}-{bins if provider == PROVIDER else 'stock'}-{partitions}"
        checkpoint = self.scratch / f"checkpoint-{name}"
        if checkpoint.exists():
            return checkpoint
        # At the same path as the runs' copies, because state of transformWithState has absolute paths of its
        # files.
        making = self._place
        shutil.rmtree(making, ignore_errors=True)
        session = self.session(provider, bins, partitions, load)
        session.conf.set(CHANGELOG_KEY, "false")
        watched = self.watched(load)
        query = self.start(session, load, watched, making, {"availableNow": True}, maxFilesPerTrigger="1")
        if not query.awaitTermination(self.timeout):  # type: ignore[arg-type]
            raise TimeoutError(f"filling the state of {load.name} took longer than {self.timeout} s")
        self.forget_stores()
        return making.rename(checkpoint)

    @contextmanager
    def _copied(self, filled: Path) -> Iterator[Path]:
        """A copy of a checkpoint for one run, and no store left open after it."""
        checkpoint = self._place
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(filled, checkpoint)
        os.sync()  # so that the copy is not written to disk during the run
        try:
            yield checkpoint
        finally:
            self.forget_stores()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def watched(self, load: Workload) -> Path:
        """The directory that queries read, with the input that fills the state.

        Always at the same path, since a query that starts again reads the files of its last epoch.
        """
        directory = self.scratch / "watched"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for file in load.fill_files(self.scratch).iterdir():
            os.link(file, directory / f"fill-{file.name}")
        return directory

    def session(self, provider: str, bins: int, partitions: int, load: Workload) -> SparkSession:
        """A session whose queries keep their state with `provider`."""
        session = self.spark.newSession()
        session.conf.set(PROVIDER_KEY, provider)
        session.conf.set(BINS_KEY, str(bins))
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        for key, value in load.conf.items():
            session.conf.set(key, value)
        return session

    def start(
        self,
        session: SparkSession,
        load: Workload,
        directory: Path,
        checkpoint: Path,
        trigger: dict[str, Any],
        **options: str,
    ) -> StreamingQuery:
        """The workload's query over the files of a directory."""
        stream = (
            session.readStream.format("parquet").schema(load.schema).options(**options).load(str(directory))
        )
        writer = load.build(stream).writeStream.outputMode(load.mode).format("noop").trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def forget_stores(self) -> None:
        """Closes the stores of queries that have ended, which would stay until the next maintenance."""
        self.spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()

    def close(self) -> None:
        """Ends the sampling; the session stays."""
        self.resources.stop()
