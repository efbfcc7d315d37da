"""Migration plans: ordered steps that lead from one routing table to another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

from binshift.arguments import checked
from binshift.display import html_table, in_bytes
from binshift.errors import PlanError, impossible
from binshift.numbers import is_whole
from binshift.planning.routing import Move, RoutingTable, require_partitions

__all__ = ["MigrationPlan", "Step", "undoing"]

_FORMAT = 1
#: How many steps of a plan a notebook shows.
_SHOWN_STEPS = 20


@checked(PlanError)
@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """The moves that take effect at one epoch.

    Parameters
    ----------
    moves : tuple of Move
        The moves of the step; no bin moves twice.
    partitions : int
        Number of state partitions from the step's epoch on.
    """

    moves: tuple[Move, ...]
    _: KW_ONLY
    partitions: int

    def __post_init__(self) -> None:
        bins = [m.bin for m in self.moves]
        if len(set(bins)) != len(bins):
            twice = next(b for b in bins if bins.count(b) > 1)
            raise PlanError(
                f"bin {twice} moves twice in one step; give each bin one move a step",
                condition="PLAN_DOES_NOT_FIT",
                bin=twice,
            )

    def __repr__(self) -> str:
        return f"<Step: {len(self.moves)} moves, {self.partitions} partitions>"


@checked(PlanError)
@dataclass(frozen=True, slots=True, repr=False)
class MigrationPlan:
    """A plan is a value: immutable and comparable. Nothing happens until it is submitted.

    Parameters
    ----------
    source : RoutingTable
        Table that the plan starts from. The plan is refused if another table is in force.
    steps : tuple of Step
        The steps in order; empty if the target is the source.
    strategy : str
        Name of the strategy that cut the plan, for logs and the history. Nothing else depends on it.
    gap : int
        Epochs that stay idle between two steps.
    on_demand : bool
        Whether each bin is fetched when it is first touched, after its step; see `OnDemand`.
    bin_bytes : tuple of int, optional
        State bytes of each bin when the plan was made. Only for people: it is neither compared nor kept in
        JSON.
    earliest_epoch : int, optional
        The earliest epoch at which the first step can take effect if the plan is submitted at once. Only for
        people, like `bin_bytes`.
    whole_bins : tuple of str
        Why bins come whole, although the plan is on demand, for example because operators scan their state.
        Empty if rows come, or if that isn't known. Only for people, too.

    Raises
    ------
    PlanError
        If a step doesn't fit the table that the steps before it lead to.
    """

    source: RoutingTable
    _: KW_ONLY
    steps: tuple[Step, ...]
    strategy: str
    gap: int = 0
    on_demand: bool = False
    bin_bytes: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    earliest_epoch: int | None = field(default=None, compare=False, repr=False)
    whole_bins: tuple[str, ...] = field(default=(), compare=False, repr=False)
    #: The table after the last step.
    target: RoutingTable = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not is_whole(self.gap):
            raise impossible(PlanError, "gap", self.gap, "a whole number of epochs, at least 0")
        object.__setattr__(self, "target", self._walk())

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves, in the order in which they take effect."""
        return tuple(m for step in self.steps for m in step.moves)

    @property
    def summary(self) -> str:
        """The plan in one line."""
        return (
            f"{self.source.partitions} -> {self.target.partitions} partitions, {self.strategy}, "
            f"{len(self.moves)} bins in {len(self.steps)} steps"
        )

    @property
    def bytes_to_move(self) -> int | None:
        """State bytes of the bins that move; None if they are not known."""
        return None if self.bin_bytes is None else sum(self._bytes_of(step) for step in self.steps)

    def with_bytes(self, bin_bytes: Sequence[int]) -> MigrationPlan:
        """The same plan, with the state bytes of each bin."""
        return replace(self, bin_bytes=tuple(bin_bytes))

    def tables(self) -> Iterator[RoutingTable]:
        """The table after each step."""
        table = self.source
        for step in self.steps:
            table = table.moved(step.moves, partitions=step.partitions)
            yield table

    def _walk(self) -> RoutingTable:
        """Checks all steps, in time that grows with moves, not steps times bins; returns the last table."""
        owners = list(self.source.assignment)
        sizes = Counter(owners)
        partitions = self.source.partitions
        for i, step in enumerate(self.steps):
            for m in step.moves:
                if m.bin >= len(owners):
                    raise PlanError(
                        f"step {i + 1}: bin {m.bin} does not exist; there are {len(owners)} bins",
                        condition="PLAN_DOES_NOT_FIT",
                        bin=m.bin,
                    )
                if owners[m.bin] != m.source:
                    raise PlanError(
                        f"step {i + 1}: bin {m.bin} belongs to partition {owners[m.bin]}, not to {m.source}",
                        condition="PLAN_DOES_NOT_FIT",
                        bin=m.bin,
                    )
                sizes[m.source] -= 1
                sizes[m.target] += 1
                owners[m.bin] = m.target
            require_partitions(step.partitions, len(owners))
            partitions = step.partitions
            if beyond := [p for p, size in sizes.items() if size and p >= partitions]:
                raise PlanError(
                    f"step {i + 1} leaves bins in partition {max(beyond)}, but has {partitions} partitions",
                    condition="PLAN_DOES_NOT_FIT",
                    bin=owners.index(max(beyond)),
                )
        return RoutingTable(partitions, tuple(owners), epoch=self.source.epoch)

    def to_json(self) -> str:
        """The plan as JSON, for `from_json`."""
        return json.dumps(
            {
                "format": _FORMAT,
                "source": {
                    "partitions": self.source.partitions,
                    "assignment": self.source.assignment,
                    "epoch": self.source.epoch,
                },
                "steps": [
                    {"partitions": s.partitions, "moves": [[m.bin, m.source, m.target] for m in s.moves]}
                    for s in self.steps
                ],
                "strategy": self.strategy,
                "gap": self.gap,
                "on_demand": self.on_demand,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> MigrationPlan:
        """The plan that `to_json` wrote.

        Raises
        ------
        PlanError
            If `text` is no plan, has another format, or is inconsistent.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _unreadable(f"it is not JSON ({error})") from error
        if (found := _field(data, "format", object)) != _FORMAT:
            raise PlanError(
                f"the plan has format {found!r}; this binshift reads {_FORMAT}",
                condition="UNKNOWN_FORMAT",
                format=found,
            )
        source = _field(data, "source", dict)
        return cls(
            source=RoutingTable(
                _field(source, "partitions", int),
                tuple(_field(source, "assignment", list)),
                epoch=_field(source, "epoch", int),
            ),
            steps=tuple(
                Step(tuple(map(_move, _field(s, "moves", list))), partitions=_field(s, "partitions", int))
                for s in _field(data, "steps", list)
            ),
            strategy=_field(data, "strategy", str),
            gap=_field(data, "gap", int),
            on_demand=_field(data, "on_demand", bool),
        )

    def __str__(self) -> str:
        source, target = self.source, self.target
        most = max((len(s.moves) for s in self.steps), default=0)
        moved = most_bytes = ""
        if self.bin_bytes is not None:
            moved = f", {in_bytes(sum(self._bytes_of(s) for s in self.steps))}"
            most_bytes = f", {in_bytes(max((self._bytes_of(s) for s in self.steps), default=0))}"
        return (
            f"MigrationPlan: {source.partitions} -> {target.partitions} partitions, {self.strategy}\n"
            f"  steps: {len(self.steps)}, {self.gap} idle epochs between two\n"
            f"  bins to move: {len(self.moves)} of {source.bins} ({len(self.moves) / source.bins:.0%}){moved}\n"
            f"  most in one step: {most} bins{most_bytes}"
            f"{self._soonest}" + "".join(f"\n  waits for whole bins: {why}" for why in self.whole_bins)
        )

    def __repr__(self) -> str:
        return f"<MigrationPlan: {self.summary}>"

    @property
    def _soonest(self) -> str:
        """The earliest epoch as text; empty if that isn't known."""
        if self.earliest_epoch is None:
            return ""
        first, last = self.earliest_epoch, self.earliest_epoch + (len(self.steps) - 1) * (1 + self.gap)
        epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        return f"\n  takes effect: {epochs} at the earliest, if submitted now"

    def _bytes_of(self, step: Step) -> int:
        return sum(self.bin_bytes[m.bin] for m in step.moves) if self.bin_bytes is not None else 0

    def _repr_html_(self) -> str:
        rows = [
            (
                str(i),
                str(step.partitions),
                str(len(step.moves)),
                "?" if self.bin_bytes is None else in_bytes(self._bytes_of(step)),
                str(len({(m.source, m.target) for m in step.moves})),
            )
            for i, step in enumerate(self.steps, 1)
        ]
        if len(rows) > _SHOWN_STEPS:
            rows = [*rows[:_SHOWN_STEPS], ("...", "", "", "", "")]
        head = ("step", "partitions", "bins", "bytes", "pairs of partitions")
        title = f"{self.source.partitions} → {self.target.partitions} partitions, {self.strategy}"
        note = f"{len(self.moves)} of {self.source.bins} bins move in {len(self.steps)} steps"
        return html_table(title, head, rows, note)


_KINDS = {dict: "an object", list: "a list", int: "a whole number", str: "a text", bool: "true or false"}
_T = TypeVar("_T")


def undoing(plan: MigrationPlan, taken: int) -> MigrationPlan:
    """The plan by which the driver undoes the first `taken` steps of a plan, the last one first."""
    done = replace(plan, steps=plan.steps[:taken])
    before = [plan.source.partitions, *(step.partitions for step in done.steps)]
    steps = [
        Step(tuple(Move(m.bin, m.target, m.source) for m in step.moves), partitions=partitions)
        for step, partitions in zip(done.steps, before, strict=False)
    ]
    return replace(plan, source=done.target, steps=tuple(reversed(steps)), earliest_epoch=None)


def _field(data: Any, name: str, kind: type[_T]) -> _T:
    """A field of a plan's JSON, which must have this type."""
    if not isinstance(data, dict) or name not in data:
        raise _unreadable(f"it has no {name}")
    value = data[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _unreadable(f"{name} is not {_KINDS[kind]}")
    return value


def _move(numbers: Any) -> Move:
    if not isinstance(numbers, list) or len(numbers) != 3 or not all(map(is_whole, numbers)):
        raise _unreadable(
            f"{json.dumps(numbers)} is not a move, which is a bin with its old and its new partition"
        )
    return Move(*numbers)


def _unreadable(reason: str) -> PlanError:
    return PlanError(
        f"this is not a migration plan: {reason}; make a new plan, and pass its JSON on unchanged",
        condition="PLAN_UNREADABLE",
    )
