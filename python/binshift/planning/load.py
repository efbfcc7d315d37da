"""Computes loads of bins and skew of partitions, from the table of statistics. Pure functions.

They read the columns `bin`, `bytes`, `reads` and `writes` of the table that `Controller.stats` returns,
which has a row per stateful operator and bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from binshift.display import html_table
from binshift.errors import PlanError
from binshift.planning.routing import RoutingTable

__all__ = ["By", "Skew", "bin_bytes", "bin_loads", "measured_loads", "skew_of"]

#: How load is measured: by rows read and written in the last epoch, by bytes of state, by both with equal
#: weight, or only by the number of bins.
By = Literal["rows", "bytes", "both", "bins"]


@dataclass(frozen=True, slots=True, repr=False)
class Skew:
    """How unevenly the partitions are loaded.

    Parameters
    ----------
    by : str
        How load is measured; see `By`.
    loads : tuple of float
        Load of each partition, as shares of the whole, which add up to 1; all 0 if there is no load.
    """

    by: By
    _: KW_ONLY
    loads: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Load of the busiest partition divided by the mean; 1 if the load is even, or the query is idle."""
        total = sum(self.loads)
        return max(self.loads) * len(self.loads) / total if total else 1.0

    @property
    def busiest(self) -> int:
        """The partition with the most load; the first of several."""
        return self.loads.index(max(self.loads))

    def __str__(self) -> str:
        return (
            f"Skew by {self.by}: the busiest of {len(self.loads)} partitions, {self.busiest}, has "
            f"{self.ratio:.2f} times the mean"
        )

    def __repr__(self) -> str:
        return f"<{self}>"

    def _repr_html_(self) -> str:
        rows = [(p, f"{load:.1%}") for p, load in enumerate(self.loads)]
        return html_table(str(self), ("partition", f"share of {self.by}"), rows)


def bin_loads(stats: pa.Table | None, bins: int, by: By) -> tuple[float, ...]:
    """The load of each bin as a share of the whole, summed over operators.

    Parameters
    ----------
    stats : pyarrow.Table or None
        The table that `Controller.stats` returns. A bin without a row has no load. Without a table, and by
        "bins", all bins have the same load.
    bins : int
        Number of bins.
    by : {"rows", "bytes", "both", "bins"}
        How load is measured. "both" is the mean of the shares of rows and of bytes.

    Returns
    -------
    tuple of float
        The shares add up to 1, or are all 0 if there is no load of that kind, for example after an epoch
        without rows.

    Raises
    ------
    PlanError
        If `by` is something else, or the table has a bin beyond `bins`.
    """
    _require_kind(by)
    if by == "bins" or stats is None:
        return (1 / bins,) * bins
    parts = [_shares(_sums(stats, bins, columns)) for name, columns in _COLUMNS if by in (name, "both")]
    parts = [p for p in parts if any(p)] or parts[:1]
    return tuple(sum(values) / len(parts) for values in zip(*parts, strict=True))


def measured_loads(stats: pa.Table | None, bins: int, by: By) -> tuple[By, tuple[float, ...]]:
    """The load of each bin, measured by `by`; if there is no such load, by bytes, and else by bins.

    Parameters
    ----------
    stats : pyarrow.Table or None
        None if nothing was measured.
    bins, by
        As in `bin_loads`.

    Returns
    -------
    tuple
        How load was measured, and the share of each bin, which add up to 1.
    """
    _require_kind(by)
    kinds: tuple[By, ...] = () if stats is None else (by, "bytes")
    for kind in kinds:
        if any(loads := bin_loads(stats, bins, kind)):
            return kind, loads
    return "bins", bin_loads(stats, bins, "bins")


_COLUMNS = (("rows", ("reads", "writes")), ("bytes", ("bytes",)))


def bin_bytes(stats: pa.Table, bins: int) -> tuple[int, ...] | None:
    """The bytes of state of each bin, summed over operators; None if some are not known."""
    if stats["bytes"].null_count:
        return None
    return tuple(int(x) for x in _sums(stats, bins, ("bytes",)))


def skew_of(table: RoutingTable, stats: pa.Table | None, by: By = "rows") -> Skew:
    """How unevenly the load is spread over the partitions of `table`.

    Raises
    ------
    PlanError
        As `bin_loads`.
    """
    loads = [0.0] * table.partitions
    for owner, load in zip(table.assignment, bin_loads(stats, table.bins, by), strict=True):
        loads[owner] += load
    return Skew(by, loads=tuple(loads))


def _require_kind(by: str) -> None:
    if by not in get_args(By):
        raise PlanError(
            f"by={by!r} is unknown; give one of {', '.join(map(repr, get_args(By)))}",
            condition="INVALID_VALUE",
            name="by",
            value=by,
        )


def _sums(stats: pa.Table, bins: int, columns: Sequence[str]) -> list[int]:
    out = [0] * bins
    grouped = stats.group_by("bin").aggregate([(c, "sum") for c in columns])
    if grouped.num_rows and (highest := pc.max(grouped["bin"]).as_py()) >= bins:
        raise PlanError(
            f"the statistics have bin {highest}, but there are {bins} bins; they are of another query",
            condition="BINS_ARE_FIXED",
            bins=bins,
        )
    for column in columns:
        for bin_, value in zip(grouped["bin"].to_pylist(), grouped[f"{column}_sum"].to_pylist(), strict=True):
            out[bin_] += value or 0
    return out


def _shares(values: Sequence[float]) -> list[float]:
    total = sum(values)
    return [v / total for v in values] if total else [0.0] * len(values)
