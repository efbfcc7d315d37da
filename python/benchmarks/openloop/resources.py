"""Measures the cost of a run: processor time, resident memory, bytes written."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil
from pyspark.sql import SparkSession

__all__ = ["Others", "Resources", "Usage", "others_share", "taken"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Over a span of time: processor time, bytes written to disk, peak memory divided by memory before.

    `native_growth` is for memory outside Java's heap, where state and its copies are; `heap_growth` is for the
    heap's old generation, which contains long-lived objects and large blocks.
    """

    cpu_seconds: float
    written_bytes: int
    native_growth: float
    heap_growth: float


class _Sampler(threading.Thread):
    """Takes a sample every `period` seconds until it is stopped."""

    def __init__(self, name: str, period: float) -> None:
        super().__init__(daemon=True, name=name)
        self._period = period
        self._ended = threading.Event()

    def run(self) -> None:
        """Takes samples until `stop`."""
        while not self._ended.wait(self._period):
            self._look()

    def stop(self) -> None:
        """Ends the sampling."""
        self._ended.set()
        self.join()

    def _look(self) -> None:
        raise NotImplementedError


class Others(_Sampler):
    """The processor time that other processes take since this was made, which disturbs a run.

    Adds up what this run's own processes take, some of which end before the run does.
    """

    def __init__(self) -> None:
        super().__init__("others", 1.0)
        self._began = time.monotonic()
        self._busy = _busy()
        self._own = 0.0
        self._seen = _own()
        self.start()

    def share(self) -> float:
        """The share, 0 to 1, of the time of all cores. Ends the measurement."""
        self.stop()
        self._look()
        spent = max(0.0, _busy() - self._busy - self._own)
        return spent / (time.monotonic() - self._began) / psutil.cpu_count()

    def _look(self) -> None:
        now = _own()
        self._own += taken(self._seen, now)
        self._seen = now


def others_share(seconds: float) -> float:
    """The share of the machine's time that other processes take in the next `seconds`, 0 to 1."""
    others = Others()
    time.sleep(seconds)
    return others.share()


def taken(before: Mapping[int, float], now: Mapping[int, float]) -> float:
    """Processor seconds between two samples, without those of processes that have ended."""
    return sum(max(0.0, seconds - before.get(pid, 0.0)) for pid, seconds in now.items())


def _busy() -> float:
    """Processor seconds during which the machine was busy, or got no processor from its host."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq + times.steal


def _own() -> dict[int, float]:
    """Processor seconds of this process and of those that it started, such as Spark's, by number."""
    me = psutil.Process()
    found = {}
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    native: int
    old: int
    cpu: float
    written: int


class Resources(_Sampler):
    """Samples the driver's JVM, which is all of Spark under a local master, as long as it lives.

    All of its heap has to be resident (see `session`), so any other resident memory is outside the heap.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__("resources", 0.2)
        jvm = spark._jvm
        self._process = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
        self._heap = jvm.java.lang.Runtime.getRuntime().totalMemory()
        pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        (self._old,) = (pool for pool in pools if pool.getName() == "G1 Old Gen")
        self._samples: list[_Sample] = []
        self.start()

    def _look(self) -> None:
        with self._process.oneshot():
            times = self._process.cpu_times()
            self._samples.append(
                _Sample(
                    time.time(),
                    self._process.memory_info().rss - self._heap,
                    self._old.getUsage().getUsed(),
                    times.user + times.system,
                    self._process.io_counters().write_bytes,
                )
            )

    def usage(self, begin: float, end: float) -> Usage:
        """The usage between two moments, in seconds since 1970."""
        before = [s for s in self._samples if s.at < begin]
        during = [s for s in self._samples if begin <= s.at <= end]
        if not during:
            return Usage(math.nan, 0, math.nan, math.nan)
        first = before[-1] if before else during[0]
        return Usage(
            during[-1].cpu - first.cpu,
            during[-1].written - first.written,
            max(s.native for s in during) / first.native,
            max(s.old for s in during) / max(1, first.old),
        )
