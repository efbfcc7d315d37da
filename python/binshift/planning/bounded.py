"""Steps that cost no more than the user allows. They are another strategy's steps, cut where necessary."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from binshift.arguments import checked
from binshift.display import brief
from binshift.errors import PlanError, impossible
from binshift.numbers import is_number
from binshift.planning.plan import MigrationPlan
from binshift.planning.routing import Move, RoutingTable
from binshift.planning.strategies import OnDemand, Strategy, in_steps, strategy_of

__all__ = ["DEFAULT_BYTES_PER_S", "Bounded"]

_log = logging.getLogger("binshift")

#: Bytes that a partition adopts in a second, if no migration has been measured yet. 50 MB/s is what an
#: unprepared step reads from another executor; a prepared step is a hundred times as fast.
DEFAULT_BYTES_PER_S = 50e6


@checked(PlanError, but=("strategy",))
@dataclass(frozen=True, slots=True, repr=False)
class Bounded:
    """Another strategy, whose steps are bounded in the bytes that they move, or the time that they take.

    The steps of `strategy` keep their order. A step that exceeds a bound is cut into several. A bin can't be
    cut, so if a single bin exceeds a bound, it moves in a step of its own, and this is logged.

    The time of a step is estimated from `bytes_per_s`, for partitions that adopt their bins at the same time on
    `cores` cores. The estimate is Graham's bound (1969), which holds for any order in which Spark starts the
    tasks. So tasks at that rate never take longer.

    Parameters
    ----------
    strategy : Strategy or str
        The strategy to bound, or its name: any except `OnDemand`, which has no steps to cut.
    max_bytes_per_step : int, optional
        The most bytes of state that one step may move, summed over all stateful operators.
    pause_budget_s : float, optional
        The most seconds that adopting the bins of one step may take. The epoch of the step may be longer by
        this time.
    bin_bytes : sequence of int, optional
        State bytes of each bin, indexed by bin. `Controller.plan` fills it in from `Controller.stats`.
    bytes_per_s : float, optional
        Bytes that one partition adopts in a second. `Controller.plan` fills in the rate of the query's earlier
        steps; with `prepare=False`, the rate of those that were not prepared either. Without any such steps, it
        is `DEFAULT_BYTES_PER_S`, 50 MB/s.
    cores : int
        Partitions that adopt at the same time. `Controller.plan` fills in the cores of the executors. The
        default, 1, is the cautious assumption that they adopt one after the other.

    Raises
    ------
    PlanError
        If there is no bound, a number is not positive, or `strategy` is `OnDemand`.

    Examples
    --------
    >>> from binshift import Batched, RoutingTable
    >>> table = RoutingTable(2, (0, 1) * 8)
    >>> sizes = [1_000] * table.bins
    >>> plan = Bounded(Batched(8), max_bytes_per_step=3_000, bin_bytes=sizes).plan(table, table.balanced(4))
    >>> [len(step.moves) for step in plan.steps]
    [3, 3, 2]
    """

    strategy: Strategy | str
    _: KW_ONLY
    max_bytes_per_step: int | None = None
    pause_budget_s: float | None = None
    bin_bytes: Sequence[int] | None = field(default=None, repr=False)
    bytes_per_s: float | None = None
    cores: int = 1

    def __post_init__(self) -> None:
        if self.max_bytes_per_step is None and self.pause_budget_s is None:
            wanted = "max_bytes_per_step=... or pause_budget_s=..."
            raise impossible(PlanError, "max_bytes_per_step", None, wanted, what="Bounded without a bound")
        object.__setattr__(self, "strategy", strategy_of(self.strategy))
        if isinstance(self.strategy, OnDemand):
            raise PlanError(
                "a plan on demand moves everything in one step and cannot be bounded; bound another strategy",
                condition="INVALID_VALUE",
                name="strategy",
                value=self.strategy,
            )
        for name in ("max_bytes_per_step", "pause_budget_s", "bytes_per_s", "cores"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise impossible(PlanError, name, value, "a number above 0")
        if self.bin_bytes is not None:
            object.__setattr__(self, "bin_bytes", tuple(self.bin_bytes))
            if wrong := [b for b in self.bin_bytes if b < 0]:
                wanted = "the bytes of each bin, a number of at least 0"
                raise impossible(PlanError, "bin_bytes", wrong[0], wanted)

    def with_costs(self, bin_bytes: Sequence[int] | None, *, bytes_per_s: float | None, cores: int) -> Bounded:
        """A copy with measured costs, unless the user has given them."""
        return replace(
            self,
            bin_bytes=bin_bytes if self.bin_bytes is None else self.bin_bytes,
            bytes_per_s=bytes_per_s if self.bytes_per_s is None else self.bytes_per_s,
            cores=cores if self.cores == 1 else self.cores,
        )

    def pause_s(self, moves: Sequence[Move]) -> float:
        """An estimate of the most seconds that adopting `moves` in one step takes."""
        load = _Load(self)
        for move in moves:
            load.add(move)
        return load.pause_s

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`.

        Raises
        ------
        PlanError
            If the bytes of the bins are not known, or are for another number of bins.
        """
        if self.bin_bytes is None:
            raise PlanError(
                "the bytes of the bins are not known; give Bounded(bin_bytes=[...]), or plan with "
                "Controller.plan, which takes them from a running query",
                condition="BYTES_UNKNOWN",
            )
        if len(self.bin_bytes) != source.bins:
            raise PlanError(
                f"bin_bytes has {len(self.bin_bytes)} bins, but the table {source.bins}; give those of each",
                condition="BINS_ARE_FIXED",
                bins=source.bins,
            )
        whole = strategy_of(self.strategy).plan(source, target)
        parts = [part for step in whole.steps for part in self._cut(step.moves)]
        return in_steps(source, target, parts, name=f"{whole.strategy}, bounded", gap=whole.gap).with_bytes(
            self.bin_bytes
        )

    def _cut(self, moves: Sequence[Move]) -> list[list[Move]]:
        parts: list[list[Move]] = []
        load = _Load(self)
        for move in moves:
            load.add(move)
            if not parts or load.is_beyond:
                parts.append([])
                load = _Load(self)
                load.add(move)
                if load.is_beyond:
                    _log.warning(
                        "bin %d alone is beyond the bound of a step (%d bytes, about %.3f s); it moves in "
                        "a step of its own",
                        move.bin,
                        load.bytes,
                        load.pause_s,
                    )
            parts[-1].append(move)
        return parts

    def __repr__(self) -> str:
        return brief(self)


class _Load:
    """The cost of a step so far."""

    def __init__(self, bounds: Bounded) -> None:
        self._bounds = bounds
        self._sizes: Sequence[int] = bounds.bin_bytes or ()
        self._rate = bounds.bytes_per_s or DEFAULT_BYTES_PER_S
        self._adopted: dict[int, int] = {}
        self._most = 0
        self.bytes = 0

    def add(self, move: Move) -> None:
        size = self._sizes[move.bin]
        self.bytes += size
        self._adopted[move.target] = self._adopted.get(move.target, 0) + size
        self._most = max(self._most, self._adopted[move.target])

    @property
    def pause_s(self) -> float:
        return (self._most + (self.bytes - self._most) / self._bounds.cores) / self._rate

    @property
    def is_beyond(self) -> bool:
        b = self._bounds
        return (b.max_bytes_per_step is not None and self.bytes > b.max_bytes_per_step) or (
            b.pause_budget_s is not None and self.pause_s > b.pause_budget_s
        )
