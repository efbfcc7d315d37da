"""What a run costs: processor time, resident memory, bytes written."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

import psutil
from pyspark.sql import SparkSession

__all__ = ["Others", "Resources", "Usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Over a span of time: processor time, bytes written to disk, peak memory ÷ memory before."""

    cpu_seconds: float
    written_bytes: int
    memory_growth: float


class Others:
    """What of the machine's processor time other processes took since this was made: what disturbs a run."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._others = _busy() - _own()

    def share(self) -> float:
        """0 to 1, of the time of all cores."""
        spent = max(0.0, _busy() - _own() - self._others)
        return spent / (time.monotonic() - self._began) / psutil.cpu_count()


def _busy() -> float:
    """Processor seconds that the machine was not idle, or not given by its host."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq + times.steal


def _own() -> float:
    """Processor seconds of this process and of those that it started, such as Spark's."""
    me = psutil.Process()
    return sum(sum(p.cpu_times()[:4]) for p in (me, *me.children(recursive=True)))


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    rss: int
    cpu: float
    written: int


class Resources(threading.Thread):
    """Samples the driver's JVM, which is all of Spark under a local master, as long as it lives."""

    PERIOD = 0.2

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(daemon=True, name="resources")
        self._process = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())
        self._samples: list[_Sample] = []
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Samples until `stop`."""
        while not self._ended.wait(self.PERIOD):
            with self._process.oneshot():
                times = self._process.cpu_times()
                self._samples.append(
                    _Sample(
                        time.time(),
                        self._process.memory_info().rss,
                        times.user + times.system,
                        self._process.io_counters().write_bytes,
                    )
                )

    def stop(self) -> None:
        """No more samples after this."""
        self._ended.set()
        self.join()

    def usage(self, begin: float, end: float) -> Usage:
        """Between two moments, seconds since 1970."""
        before = [s for s in self._samples if s.at < begin]
        during = [s for s in self._samples if begin <= s.at <= end]
        if not during:
            return Usage(math.nan, 0, math.nan)
        first = before[-1] if before else during[0]
        return Usage(
            during[-1].cpu - first.cpu,
            during[-1].written - first.written,
            max(s.rss for s in during) / first.rss,
        )
