"""Timers, timeouts and times to live that follow the clock fire exactly once, wherever their bin is.

Such queries run epoch after epoch, with or without data, so results are compared over all epochs, with a
run of the stock provider. Short times end by the next epoch on any machine, and long ones never end.
"""

import pytest

from binshift import AllAtOnce, Batched
from harness import STOCK, rows, until
from local.processors import count_until_silent, expiring

FILES = range(6)


def results(run):
    """The output rows of all epochs."""
    return sorted(row for batch in list(run.outputs.values()) for row in batch)


def count(run, *what):
    return sum(1 for row in results(run) if row[1] in what)


def count_of_keys(file):
    return len({r["k"] for r in rows(file, n=20)})


def process(run, file, what, per_row):
    """Feeds a file, and waits until its rows are processed and their timers have fired."""
    seen = count(run, what) + (20 if per_row else count_of_keys(file))
    ended = count(run, "fired", "silent") + count_of_keys(file)
    run.feed(rows(file, n=20))
    assert until(lambda: count(run, what) == seen)
    assert until(lambda: count(run, "fired", "silent") == ended)


def run_files(run, what, per_row, targets=None):
    run.start()
    for file in FILES:
        process(run, file, what, per_row)
        if targets and file in targets:
            n, strategy = targets[file]
            run.attach().rescale(n, strategy=strategy, prepare=False).wait(timeout=60)
    # A few more epochs, in which nothing may happen again.
    last = run.query.lastProgress.batchId
    assert until(lambda: run.query.lastProgress.batchId >= last + 3)


TARGETS = {1: (4, AllAtOnce()), 3: (3, Batched(16))}


@pytest.mark.matrix
def test_timeouts_in_processing_time(stream):
    build = count_until_silent("ProcessingTimeTimeout")
    run, oracle = stream(build), stream(build, "oracle", provider=STOCK)
    run_files(oracle, "seen", per_row=False)
    oracle.stop()
    run_files(run, "seen", per_row=False, targets=TARGETS)
    assert results(run) == results(oracle)
    assert run.attach().routing().partitions == 3
    run.stop()
    assert run.state() == []


@pytest.mark.long
def test_timers_and_times_to_live(stream):
    run, oracle = stream(expiring), stream(expiring, "oracle", provider=STOCK)
    run_files(oracle, "lasting", per_row=True)
    oracle.stop()
    run_files(run, "lasting", per_row=True, targets=TARGETS)
    assert results(run) == results(oracle)
    run.stop()
    for kind in ("value", "list", "map"):
        assert variable(run, f"brief_{kind}") == variable(oracle, f"brief_{kind}") == []
        assert variable(run, f"lasting_{kind}") == variable(oracle, f"lasting_{kind}") != []
    assert timers(run) == timers(oracle) != []
    # The indexes have no rows of expired state, either.
    assert counts(run) == counts(oracle)


def variable(run, name):
    """The keys and values of a variable, without their times of expiry."""
    reader = run.spark.read.format("statestore").option("stateVarName", name)
    return sorted(timeless(r.asDict(recursive=True)) for r in reader.load(str(run.checkpoint)).collect())


def timeless(value):
    if not isinstance(value, dict):
        return value
    fields = {k: v for k, v in value.items() if k not in ("ttlExpirationMs", "partition_id")}
    return tuple(timeless(v) for _, v in sorted(fields.items()))


def timers(run):
    reader = run.spark.read.format("statestore").option("readRegisteredTimers", "true")
    return sorted(r.key.k for r in reader.load(str(run.checkpoint)).collect())


def counts(run):
    operator = run.query.lastProgress.stateOperators[0]
    custom = operator.customMetrics
    return operator.numRowsTotal, {
        k: v for k, v in custom.items() if "numInternal" in k or "ColFamilyCount" in k
    }
