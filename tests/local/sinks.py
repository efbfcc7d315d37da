"""Sinks that fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from harness import StreamRun, rows


def fail_once_at(run: StreamRun, epoch: int, first: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Makes the sink fail at `epoch`, after the partitions' commits and `first`; the result repairs it."""
    keep = run._keep

    def fail(batch: DataFrame, e: int) -> None:
        keep(batch, e)
        if e == epoch:
            first()
            raise RuntimeError("this sink fails on purpose")

    setattr(run, "_keep", fail)  # noqa: B010
    return lambda: setattr(run, "_keep", keep)


def fail_at(run: StreamRun, epoch: int, first: Callable[[], None] = lambda: None) -> None:
    """Starts the query with a sink that fails at the rows of `epoch` and works again afterwards."""
    mend = fail_once_at(run, epoch, first)
    run.stop()
    run.start()
    run.feed(rows(epoch))
    with pytest.raises(Exception, match="fails on purpose"):
        run.query.processAllAvailable()
    mend()
