"""Sinks that fail, as those of users do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from harness import StreamRun, rows


def fail_once_at(run: StreamRun, epoch: int, first: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """The sink fails at `epoch`, after its partitions commit and `first`; returns what has it work again."""
    keep = run._keep

    def fail(batch: DataFrame, e: int) -> None:
        keep(batch, e)
        if e == epoch:
            first()
            raise RuntimeError("this sink fails on purpose")

    setattr(run, "_keep", fail)  # noqa: B010
    return lambda: setattr(run, "_keep", keep)


def fail_at(run: StreamRun, epoch: int, first: Callable[[], None] = lambda: None) -> None:
    """Starts the query, whose sink fails with the rows of `epoch`, and works again afterwards."""
    mend = fail_once_at(run, epoch, first)
    run.stop()
    run.start()
    run.feed(rows(epoch))
    with pytest.raises(Exception, match="fails on purpose"):
        run.query.processAllAvailable()
    mend()
