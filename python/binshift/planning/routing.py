"""The routing table: which partition owns which bin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field

from binshift.arguments import checked
from binshift.display import html_table
from binshift.errors import PlanError, impossible
from binshift.numbers import is_whole

__all__ = ["MAX_BINS", "Move", "RoutingTable"]

#: Number of distinct bins that the two-byte prefix of a stored key can represent.
MAX_BINS = 1 << 16
#: How many partitions of a table a notebook shows.
_SHOWN_PARTITIONS = 64


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """A bin that moves from one partition to another.

    Parameters
    ----------
    bin : int
        The bin that moves.
    source, target : int
        The partition that owns it before and after.
    """

    bin: int
    source: int
    target: int

    def __post_init__(self) -> None:
        for name in ("bin", "source", "target"):
            if not is_whole(value := getattr(self, name)):
                raise impossible(PlanError, name, value, "a whole number of at least 0")
        if self.source == self.target:
            raise PlanError(
                f"bin {self.bin} moves from partition {self.source} to itself; leave it out",
                condition="PLAN_DOES_NOT_FIT",
                bin=self.bin,
            )


@checked(PlanError, but=("partitions", "assignment"))
@dataclass(frozen=True, slots=True, repr=False)
class RoutingTable:
    """The map from bin to partition; one for all stateful operators of a query.

    *Invariant:* each bin has exactly one owner, and it is one of the partitions.

    Parameters
    ----------
    partitions : int
        Number of state partitions. A partition may own no bin.
    assignment : tuple of int
        Owner of each bin, indexed by bin.
    epoch : int, optional
        Epoch (batch id) from which on the table is in force. It doesn't matter for equality: two tables that
        route alike are equal.

    Raises
    ------
    PlanError
        If an owner is not one of the partitions, or a number is out of range.

    Examples
    --------
    >>> table = RoutingTable(2, (0, 1, 0, 1, 0, 1))
    >>> table.balanced(3).assignment
    (0, 1, 0, 1, 2, 2)
    """

    partitions: int
    assignment: tuple[int, ...]
    _: KW_ONLY
    epoch: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.assignment, str | bytes) or not isinstance(self.assignment, Sequence):
            raise impossible(
                PlanError, "assignment", self.assignment, "the owner of each bin, as a tuple of int"
            )
        object.__setattr__(self, "assignment", tuple(self.assignment))
        if not 1 <= len(self.assignment) <= MAX_BINS:
            n = len(self.assignment)
            raise impossible(PlanError, "bins", n, f"1 to {MAX_BINS} of them", what=f"a table of {n} bins")
        require_partitions(self.partitions, self.bins)
        for bin_, owner in enumerate(self.assignment):
            if not is_whole(owner, 0, self.partitions - 1):
                wanted = f"a partition from 0 to {self.partitions - 1}"
                what = f"the owner {owner!r} of bin {bin_}"
                raise impossible(PlanError, "assignment", owner, wanted, what=what)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.assignment)

    def bins_of(self, partition: int) -> tuple[int, ...]:
        """The bins that `partition` owns, ascending."""
        return tuple(b for b, owner in enumerate(self.assignment) if owner == partition)

    def sizes(self) -> tuple[int, ...]:
        """Number of bins of each partition, indexed by partition."""
        count = Counter(self.assignment)
        return tuple(count[p] for p in range(self.partitions))

    def __str__(self) -> str:
        sizes = self.sizes()
        return (
            f"RoutingTable: {self.bins} bins in {self.partitions} partitions of {min(sizes)} to "
            f"{max(sizes)} bins, from epoch {self.epoch} on"
        )

    def __repr__(self) -> str:
        return f"<{self}>"

    def _repr_html_(self) -> str:
        sizes = self.sizes()
        rows = [(p, size, f"{size / self.bins:.1%}") for p, size in enumerate(sizes[:_SHOWN_PARTITIONS])]
        note = "" if len(sizes) <= _SHOWN_PARTITIONS else f"and {len(sizes) - _SHOWN_PARTITIONS} more"
        return html_table(str(self), ("partition", "bins", "share"), rows, note)

    def moves_to(self, target: RoutingTable) -> tuple[Move, ...]:
        """The moves that lead from this table to `target`, ascending by bin.

        Raises
        ------
        PlanError
            If `target` has another number of bins. That number is fixed for a checkpoint.
        """
        if target.bins != self.bins:
            raise PlanError(
                f"the target has {target.bins} bins and the table in force {self.bins}; the number of "
                f"bins is fixed for a checkpoint, so give an owner for each of the {self.bins}",
                condition="BINS_ARE_FIXED",
                bins=self.bins,
            )
        pairs = zip(self.assignment, target.assignment, strict=True)
        return tuple(Move(b, old, new) for b, (old, new) in enumerate(pairs) if old != new)

    def moved(self, moves: tuple[Move, ...], *, partitions: int) -> RoutingTable:
        """The table after `moves`, with `partitions` partitions.

        Raises
        ------
        PlanError
            If a move does not start at the bin's owner, or an owner would not be a partition.
        """
        assignment = list(self.assignment)
        for m in moves:
            if m.bin >= self.bins:
                raise PlanError(
                    f"bin {m.bin} does not exist; bins are 0 to {self.bins - 1}",
                    condition="PLAN_DOES_NOT_FIT",
                    bin=m.bin,
                )
            if assignment[m.bin] != m.source:
                raise PlanError(
                    f"bin {m.bin} belongs to partition {assignment[m.bin]}, not to {m.source}",
                    condition="PLAN_DOES_NOT_FIT",
                    bin=m.bin,
                )
            assignment[m.bin] = m.target
        return RoutingTable(partitions, tuple(assignment), epoch=self.epoch)

    def balanced(self, partitions: int) -> RoutingTable:
        """The table with `partitions` partitions of equal size (within one bin) and the fewest moves.

        As in Meces (ATC 2022), only bins that have to move do so: each partition keeps the bins that it owns,
        up to its quota.

        Raises
        ------
        PlanError
            If `partitions` is not a whole number from 1 to the number of bins.
        """
        require_partitions(partitions, self.bins)
        return self._levelled(partitions, range(partitions))

    @checked(PlanError)
    def without(self, partitions: Collection[int]) -> RoutingTable:
        """The table in which `partitions` own no bins and the others own equally many, with few moves.

        Raises
        ------
        PlanError
            If no other partition is left.
        """
        others = [p for p in range(self.partitions) if p not in partitions]
        if not others:
            raise PlanError(
                f"all {self.partitions} partitions would be left without bins; add others first",
                condition="INVALID_VALUE",
                name="partitions",
                value=tuple(partitions),
            )
        return self._levelled(self.partitions, others)

    def _levelled(self, partitions: int, owners: Sequence[int]) -> RoutingTable:
        """Spreads bins evenly over `owners`; the other partitions own none."""
        sizes = self.sizes() + (0,) * (partitions - self.partitions)
        quota, larger = divmod(self.bins, len(owners))
        by_size = sorted(owners, key=lambda p: (-sizes[p], p))
        room = {p: quota + (rank < larger) for rank, p in enumerate(by_size)}
        assignment = [-1] * self.bins
        for bin_, owner in enumerate(self.assignment):
            if room.get(owner, 0) > 0:
                room[owner] -= 1
                assignment[bin_] = owner
        # Fills one partition after the other, from one old owner after the other. So few pairs of partitions
        # exchange bins, and the bins that a partition gives away are neighbours.
        receivers = [p for p in sorted(room) for _ in range(room[p])]
        homeless = [b for b, owner in enumerate(assignment) if owner < 0]
        homeless.sort(key=lambda b: (self.assignment[b], b))
        for bin_, receiver in zip(homeless, receivers, strict=True):
            assignment[bin_] = receiver
        return RoutingTable(partitions, tuple(assignment), epoch=self.epoch)


def require_partitions(partitions: object, bins: int) -> None:
    """Refuses a number of partitions that is not a whole number from 1 to `bins`."""
    if not is_whole(partitions, 1, bins):
        raise PlanError(
            f"{partitions!r} partitions are impossible with {bins} bins; give a whole number from 1 to {bins}",
            condition="INVALID_VALUE",
            name="partitions",
            value=partitions,
        )
