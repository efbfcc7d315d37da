"""The kinds of measurement that experiments are made of."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import stores
from binshift.session import PROVIDER, STOCK_PROVIDER
from openloop.action import Action
from openloop.resources import Others
from openloop.results import Record
from openloop.runner import Runner
from openloop.workload import Workload

__all__ = ["Bench"]

PROVIDERS = {"binshift": PROVIDER, "stock": STOCK_PROVIDER}

#: How often an operation is measured on a store, and how many of the first times don't count.
STORE_TURNS, STORE_COLD = 14, 4


@dataclass(frozen=True, slots=True)
class Bench:
    """Measures, and makes records of the results."""

    runner: Runner
    verify: bool = False

    def paced(
        self,
        experiment: str,
        case: Mapping[str, Any],
        repeat: int,
        load: Workload,
        action: Action,
        provider: str = "binshift",
        bins: int = 1024,
    ) -> Record:
        """A run at a set rate, with an action in its middle."""
        result, epochs, latencies = self.runner.run(load, action, PROVIDERS[provider], bins, self.verify)
        values = {
            **asdict(result),
            "ratio": result.ratio,
            "latency_ratio": result.latency_ratio,
            "excess": result.excess,
        }
        lines = [
            {
                "at": e["began"] - result.acted,
                "took_ms": e["took_ms"],
                "rows": e["rows"],
                "adopted": e["adopted"],
                "fetched": e["fetched"],
            }
            for e in epochs.to_pylist()
        ]
        waits = [{"at": w["scheduled"] - result.acted, "latency": w["latency"]} for w in latencies.to_pylist()]
        return Record(experiment, case, repeat, values, lines, waits)

    def throughput(
        self,
        experiment: str,
        case: Mapping[str, Any],
        repeat: int,
        load: Workload,
        provider: str = "binshift",
        bins: int = 1024,
    ) -> Record:
        """Rows per second while the query takes one interval after the other, without pauses.

        It is measured over the whole time, and not for a median epoch, because Spark's own stores all make
        their snapshots at the same epoch, every tenth. `slow_rows_per_second` is that of the slowest epochs (of
        20, the 99th percentile), `get_us` the microseconds of one of RocksDB's lookups.
        """
        epochs, others = self.runner.flat_out(load, PROVIDERS[provider], bins)
        # Not the rows that Spark reports, because it counts them twice if a query reads its input twice.
        per_interval = load.stream_files(self.runner.scratch).rows
        rows = [1000 * per_interval / e.took_ms for e in epochs]
        values = {
            "get_us": 1000 * sum(e.get_ms for e in epochs) / sum(e.gets for e in epochs),
            "rows_per_second": statistics.harmonic_mean(rows),
            "slow_rows_per_second": statistics.quantiles(rows, n=100, method="inclusive")[0],
            "epochs": len(rows),
            "others": others,
        }
        return Record(experiment, case, repeat, values)

    def store(
        self, experiment: str, case: Mapping[str, Any], repeat: int, operation: str, keys: int, rows: int
    ) -> Record:
        """Nanoseconds a row of an operation on stores that no query uses, of both providers by turns.

        `ratio` is the median of the turns' rows per second ÷ stock.
        """
        others = Others()
        binshift, stock = stores.nanoseconds(
            self.runner.spark, [PROVIDER, STOCK_PROVIDER], 1024, operation, keys, rows, STORE_TURNS
        )
        pairs = list(zip(binshift, stock, strict=True))[STORE_COLD:]
        values = {
            "binshift": statistics.median(b for b, _ in pairs),
            "stock": statistics.median(s for _, s in pairs),
            "ratio": statistics.median(s / b for b, s in pairs),
            "others": others.share(),
        }
        return Record(experiment, case, repeat, values)
