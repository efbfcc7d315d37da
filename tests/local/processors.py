"""Queries with state functions of the user: applyInPandasWithState and transformWithState."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

# Python workers can't import the tests, so the definitions of this module are pickled with the query.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

OUTPUT = "k string, what string, n long"
MINUTE_MS = 60_000


def count_until_silent(timeout: str) -> Callable[[DataFrame], DataFrame]:
    """Counts the rows of a key; a key without rows for a while outputs its count and is forgotten."""

    def count(key: Any, batches: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            n = state.get[0]
            state.remove()
            yield pd.DataFrame({"k": [key[0]], "what": ["silent"], "n": [n]})
            return
        n = state.get[0] if state.exists else 0
        latest = 0
        for rows in batches:
            n += len(rows)
            latest = max(latest, int(rows.t.max().timestamp() * 1000))
        state.update((n,))
        if timeout == "EventTimeTimeout":
            # Not before the watermark, as Spark demands.
            state.setTimeoutTimestamp(max(latest, state.getCurrentWatermarkMs()) + 2 * MINUTE_MS)
        elif timeout == "ProcessingTimeTimeout":
            state.setTimeoutDuration(1)
        yield pd.DataFrame({"k": [key[0]], "what": ["seen"], "n": [n]})

    def build(df: DataFrame) -> DataFrame:
        late = df.withWatermark("t", "1 minute") if timeout == "EventTimeTimeout" else df
        return late.groupBy("k").applyInPandasWithState(count, OUTPUT, "n long", "update", timeout)

    return build


class Everything(StatefulProcessor):
    """Uses each kind of state; an event-time timer removes a key that has had no rows for two minutes."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.deadline = handle.getValueState("deadline", "ms long")
        self.values = handle.getListState("values", "v long")
        self.minutes = handle.getMapState("minutes", "minute long", "n long")

    def observe(self, k: str, rows: list[tuple[int, int]], watermark: int) -> list[tuple[str, str, int]]:
        """One key's rows of an epoch, as (value, event time in ms)."""
        n = (self.count.get()[0] if self.count.exists() else 0) + len(rows)
        self.count.update((n,))
        self.values.appendList([(v,) for v, _ in rows])
        for _, ms in rows:
            minute = (ms // MINUTE_MS,)
            seen = self.minutes.getValue(minute)[0] if self.minutes.containsKey(minute) else 0
            self.minutes.updateValue(minute, (seen + 1,))
        deadline = max([watermark, *(ms for _, ms in rows)]) + 2 * MINUTE_MS
        if self.deadline.exists():
            self.handle.deleteTimer(self.deadline.get()[0])
        self.deadline.update((deadline,))
        self.handle.registerTimer(deadline)
        return [(k, "seen", n)]

    def expire(self, k: str) -> list[tuple[str, str, int]]:
        total = sum(v for (v,) in self.values.get())
        minutes = sum(1 for _ in self.minutes.keys())
        out = [(k, "count", self.count.get()[0]), (k, "total", total), (k, "minutes", minutes)]
        for state in (self.count, self.deadline, self.values, self.minutes):
            state.clear()
        return out

    def close(self) -> None:
        pass


class EverythingInPandas(Everything):
    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        seen = [(int(v), int(t.timestamp() * 1000)) for df in rows for v, t in zip(df.v, df.t, strict=True)]
        out = self.observe(key[0], seen, timerValues.getCurrentWatermarkInMs())
        yield pd.DataFrame(out, columns=["k", "what", "n"])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame(self.expire(key[0]), columns=["k", "what", "n"])


class EverythingInRows(Everything):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = [(r.v, int(r.t.timestamp() * 1000)) for r in rows]
        for k, what, n in self.observe(key[0], seen, timerValues.getCurrentWatermarkInMs()):
            yield Row(k=k, what=what, n=n)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        for k, what, n in self.expire(key[0]):
            yield Row(k=k, what=what, n=n)


def everything_in_pandas(df: DataFrame) -> DataFrame:
    late = df.withWatermark("t", "1 minute")
    return late.groupBy("k").transformWithStateInPandas(EverythingInPandas(), OUTPUT, "Update", "EventTime")


def everything_in_rows(df: DataFrame) -> DataFrame:
    late = df.withWatermark("t", "1 minute")
    return late.groupBy("k").transformWithState(EverythingInRows(), OUTPUT, "Update", "EventTime")


class Expiring(StatefulProcessor):
    """State that expires by the next epoch, state that lasts, timers that fire soon, and timers that don't."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.brief = self.variables(handle, "brief", 1)
        self.lasting = self.variables(handle, "lasting", 24 * 60 * MINUTE_MS)

    def variables(self, handle: StatefulProcessorHandle, name: str, ttl_ms: int) -> tuple[Any, Any, Any]:
        return (
            handle.getValueState(f"{name}_value", "n long", ttl_ms),
            handle.getListState(f"{name}_list", "n long", ttl_ms),
            handle.getMapState(f"{name}_map", "v long", "n long", ttl_ms),
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs()
        for r in rows:
            for what, (value, items, table) in (("brief", self.brief), ("lasting", self.lasting)):
                n = value.get()[0] + 1 if value.exists() else 1
                value.update((n,))
                items.appendValue((n,))
                table.updateValue((r.v % 3,), (n,))
                sizes = 100 * sum(1 for _ in items.get()) + 10 * sum(1 for _ in table.keys()) + n
                yield Row(k=key[0], what=what, n=sizes)
        self.handle.registerTimer(now + 1)
        self.handle.registerTimer(now + 24 * 60 * MINUTE_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(k=key[0], what="fired", n=sum(1 for _ in self.handle.listTimers()))

    def close(self) -> None:
        pass


def expiring(df: DataFrame) -> DataFrame:
    return df.groupBy("k").transformWithState(Expiring(), OUTPUT, "Update", "ProcessingTime")


class Remembering(StatefulProcessor):
    """Sums, keeps and counts, in one variable of each kind, without times."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "n long")
        self.values = handle.getListState("values", "v long")
        self.classes = handle.getMapState("classes", "c long", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for r in rows:
            self.total.update(((self.total.get()[0] if self.total.exists() else 0) + r.v,))
            self.values.appendValue((r.v,))
            c = (r.v % 4,)
            seen = self.classes.getValue(c)[0] if self.classes.containsKey(c) else 0
            self.classes.updateValue(c, (seen + 1,))
        yield Row(k=str(key[0]), what="total", n=self.total.get()[0])
        yield Row(k=str(key[0]), what="values", n=sum(1 for _ in self.values.get()))
        yield Row(k=str(key[0]), what="classes", n=sum(1 for _ in self.classes.keys()))

    def close(self) -> None:
        pass


def remembering(df: DataFrame) -> DataFrame:
    return df.groupBy("k").transformWithState(Remembering(), OUTPUT, "Update", "None")


class Summing(StatefulProcessor):
    """Like `Remembering`, with the first of its variables only."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self.total.get()[0] if self.total.exists() else 0
        self.total.update((before + sum(r.v for r in rows),))
        yield Row(k=str(key[0]), what="total", n=self.total.get()[0])

    def close(self) -> None:
        pass


def summing(df: DataFrame) -> DataFrame:
    return df.groupBy("k").transformWithState(Summing(), OUTPUT, "Update", "None")


def remembering_by_time(df: DataFrame) -> DataFrame:
    return df.groupBy("t").transformWithState(Remembering(), OUTPUT, "Update", "None")


class SummingInPandas(Summing):
    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.halves = handle.getMapState("halves", "half double", "n long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        before = self.total.get()[0] if self.total.exists() else 0
        self.total.update((before + sum(int(df.v.sum()) for df in rows),))
        self.halves.updateValue((before / 2,), (1,))
        yield pd.DataFrame([(str(key[0]), "total", self.total.get()[0])], columns=["k", "what", "n"])


def summing_in_pandas(df: DataFrame) -> DataFrame:
    return df.groupBy("k").transformWithStateInPandas(SummingInPandas(), OUTPUT, "Update", "None")


def summing_by_float_in_pandas(df: DataFrame) -> DataFrame:
    """A third of the keys are null, which pandas turns into NaN."""
    keyed = df.withColumn("f", F.when(F.col("v") % 3 > 0, (F.col("v") % 7).cast("double")))
    return keyed.groupBy("f").transformWithStateInPandas(SummingInPandas(), OUTPUT, "Update", "None")


def seen(key: Any, batches: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """For `applyInPandasWithState`: the rows of a key so far, with the newest of their times."""
    n = state.get[0] if state.exists else 0
    latest = None
    for rows in batches:
        n += len(rows)
        latest = rows.t.max() if latest is None else max(latest, rows.t.max())
    state.update((n,))
    yield pd.DataFrame({"k": [key[0]], "v": [n], "t": [latest]})


class Stamping(StatefulProcessor):
    """Counts the rows of a key; its output has the event time of the newest row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        times = [r.t for r in rows]
        n = (self.count.get()[0] if self.count.exists() else 0) + len(times)
        self.count.update((n,))
        yield Row(k=key[0], t=max(times), n=n)

    def close(self) -> None:
        pass


class CountingByNumber(StatefulProcessor):
    """Counts the rows of a key of a number and a text; timers count as well, a minute later."""

    def __init__(self, has_timers: bool = False) -> None:
        self.has_timers = has_timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("n", "n long")
        self.seen = handle.getMapState("seen", "v long", "n long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        n = self.count.get()[0] if self.count.exists() else 0
        n += sum(len(df) for df in rows)
        self.count.update((n,))
        self.seen.updateValue((n,), (1,))
        if self.has_timers:
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + MINUTE_MS)
        yield pd.DataFrame([(key[1], "seen", n)], columns=["k", "what", "n"])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        sizes = sum(1 for _ in self.seen.keys())
        self.seen.clear()
        # A key that comes from a timer, and not from a row, may be written, too.
        self.count.update((self.count.get()[0] + 1000,))
        yield pd.DataFrame([(key[1], "fired", sizes)], columns=["k", "what", "n"])

    def close(self) -> None:
        pass


def counting_by_number(df: DataFrame, has_timers: bool = False) -> DataFrame:
    """Negative keys become null; pandas then makes floats of a batch's other keys, and Spark null of those."""
    number = F.when(F.col("v") >= 0, F.col("v") % 7)
    late = df.withWatermark("t", "1 minute") if has_timers else df
    keyed = late.select("t", number.alias("number"), F.concat(F.lit("s"), F.abs("v") % 3).alias("s"))
    mode = "EventTime" if has_timers else "None"
    return keyed.groupBy("number", "s").transformWithStateInPandas(
        CountingByNumber(has_timers), OUTPUT, "Update", mode
    )
