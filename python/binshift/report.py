"""The report of a migration that is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from binshift.display import brief, html_table, in_bytes, in_seconds, text_table
from binshift.epoch_progress import EpochProgress
from binshift.status import because

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from binshift.planning.plan import MigrationPlan

__all__ = ["AuditReport", "MigrationReport", "StepTiming", "adopt_rate", "report_of"]

_UNKNOWN = "?"
#: Of a longer plan, only the first and the last steps are printed.
_PRINTED_STEPS = 20


@dataclass(frozen=True, slots=True, repr=False)
class StepTiming:
    """One step that took effect.

    Parameters
    ----------
    step : int
        Its number in the plan, from 1.
    epoch : int
        Epoch at which it took effect.
    bins, partitions : int
        Bins that moved, and partitions from then on.
    duration_s, bytes, adopt_s : float, int, float, or None
        Seconds of the epoch from its trigger to its commit; bytes of state that were adopted, and the time
        that this took, summed over all operators and partitions. None if Spark no longer remembers the epoch
        (`spark.sql.streaming.numRecentProgressUpdates`).
    """

    step: int
    _: KW_ONLY
    epoch: int
    bins: int
    partitions: int
    duration_s: float | None
    bytes: int | None
    adopt_s: float | None

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The results of a migration's audits: moved bins, compared with what their old owners had committed.

    A bin that differs ends the query with `AUDIT_FAILED`, so there is no number of those here.

    Parameters
    ----------
    drawn : int
        Bins that were drawn for an audit; see the setting `audit`.
    equal : int
        Those whose rows are all what their old owners had committed.
    under_way : int
        Those that are still being compared.
    dropped : mapping of str to int
        Those that cannot be audited any more, by reason.
    """

    drawn: int
    _: KW_ONLY
    equal: int
    under_way: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    def of(self, bins: int) -> str:
        """The same for people.

        Parameters
        ----------
        bins : int
            That moved.
        """
        parts = [f"audited {self.equal} of {bins} bins" + (", equal" if self.equal else "")]
        parts += [f"{n} not audited: {reason}" for reason, n in sorted(self.dropped.items())]
        if self.under_way:
            parts.append(f"audits of {self.under_way} under way")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, repr=False)
class MigrationReport:
    """The report of a migration: its steps, and what they moved and cost.

    Parameters
    ----------
    id, strategy : str
        Id and strategy of the migration.
    steps, bins_moved : int
        How many steps took effect, and how many bins moved with them.
    first_epoch, last_epoch : int or None
        Epochs of the first and the last step; None if there was no step. The first is also None if the
        routing log no longer has it; see `timings`.
    bins_prepared, bins_shipped, bins_from_checkpoint : int or None
        How the bins came, counted per operator and store. Prepared bins were copied before their step took
        effect. Shipped bins were sent at the step by their old owner's executor. The others were read from the
        old owner's checkpoint at the step.
    bins_recopied : int or None
        Prepared and shipped bins that were copied from the checkpoint, because their shipment was damaged or
        didn't arrive.
    rows_adopted, bytes_adopted, adopt_s : int, int, float, or None
        Totals over all operators and partitions.
    longest_epoch_s : float or None
        Longest duration, in seconds, of an epoch at which a step took effect or, on demand, bins arrived.
    cancelled : bool
        Whether the migration was cancelled before its last step.
    cancelled_because : str or None
        Why it was, if its deadline did that.
    undone : str or None
        Why the migration was rolled back, such as "its deadline of 600 s passed after 2 of 5 steps". Empty if
        the driver no longer knows, because it was started again since. None if it was not rolled back.
    rollback : MigrationReport or None
        The report of the migration that undid this one; None if no step was undone.
    audit : AuditReport or None
        What the audits of its bins have found by now. None if there were none, or if an earlier run made them.
    timings : tuple of StepTiming
        The steps, in their order. If a migration has hundreds of steps, only the newest, which the routing log
        still has. The setting `routing.minEntriesToRetain` determines how many those are.
    epochs : tuple of EpochProgress
        The epochs that Spark remembered when the report was made, for `plot`.

    Notes
    -----
    How bins came, the totals and the longest epoch are taken from the query's progress, which Spark keeps only
    for the last epochs (`spark.sql.streaming.numRecentProgressUpdates`). If Spark remembers only some of the
    steps, the numbers cover those, so they are lower bounds. If it remembers none, they are None.
    """

    id: str
    _: KW_ONLY
    strategy: str
    steps: int
    bins_moved: int
    first_epoch: int | None
    last_epoch: int | None
    bins_prepared: int | None
    bins_shipped: int | None
    bins_from_checkpoint: int | None
    bins_recopied: int | None
    rows_adopted: int | None
    bytes_adopted: int | None
    adopt_s: float | None
    longest_epoch_s: float | None
    cancelled: bool
    cancelled_because: str | None = None
    undone: str | None = None
    rollback: MigrationReport | None = None
    audit: AuditReport | None = None
    timings: tuple[StepTiming, ...] = ()
    epochs: tuple[EpochProgress, ...] = field(default=(), repr=False, compare=False)

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes that a partition adopted in a second; None if nothing was measured."""
        return self.bytes_adopted / self.adopt_s if self.bytes_adopted and self.adopt_s else None

    def __str__(self) -> str:
        undoing = "" if self.rollback is None else f"\nUndone by {self.rollback}"
        if not self.steps:
            return f"MigrationReport: {self._summary()}{undoing}"
        rows = self._rows()
        if len(rows) > _PRINTED_STEPS:
            half = _PRINTED_STEPS // 2
            rows = [*rows[:half], _LEFT_OUT, *rows[-half:]]
        if len(self.timings) < self.steps:
            rows = [_LEFT_OUT, *rows]
        return f"MigrationReport: {self._summary()}\n{text_table(_HEAD, rows)}{undoing}"

    def __repr__(self) -> str:
        return f"<MigrationReport: {self._summary()}>"

    def _repr_html_(self) -> str:
        undoing = "" if self.rollback is None else self.rollback._repr_html_()
        return html_table(f"Migration {self.id}", _HEAD, self._rows(), self._summary()) + undoing

    def plot(self) -> Figure:
        """The duration of the epochs around the migration, with its steps marked, and those that undid them.

        Raises
        ------
        ConfigurationError
            If matplotlib is not installed; it comes with the extra `plot`.
        """
        from binshift.plot import timeline  # noqa: PLC0415 - matplotlib is optional

        timings = self.timings + (self.rollback.timings if self.rollback else ())
        return timeline(self.epochs, {t.epoch: t.bins for t in timings}, f"Migration, {self.strategy}")

    @property
    def _end(self) -> str:
        if self.undone is not None:
            return f"rolled back{because(self.undone)}"
        return f"cancelled{because(self.cancelled_because)}" if self.cancelled else "finished"

    @property
    def _undoing(self) -> str:
        """How many steps were undone, and when."""
        if self.rollback is None:
            return ""
        n, first, last = self.rollback.steps, self.rollback.first_epoch, self.rollback.last_epoch
        span = f"{_UNKNOWN if first is None else first} {'and' if n == 2 else 'to'} {last}"
        what = f"1 step was undone at epoch {last}" if n == 1 else f"{n} steps were undone at epochs {span}"
        return f"; {what}{', and then the rollback was cancelled' if self.rollback.cancelled else ''}"

    def _summary(self) -> str:
        if not self.steps:
            return f"{self.strategy}, {self._end} without a step{self._undoing}"
        first = _UNKNOWN if self.first_epoch is None else self.first_epoch
        longest = _UNKNOWN if self.longest_epoch_s is None else in_seconds(self.longest_epoch_s)
        audit = f"; {self.audit.of(self.bins_moved)}" if self.audit else ""
        return (
            f"{self.strategy}, {self._end}: {self.bins_moved} bins ({self._size}) in {self.steps} steps, "
            f"epochs {first} to {self.last_epoch}; longest epoch {self._at_least(longest)}{audit}"
            f"{self._undoing}"
        )

    @property
    def _size(self) -> str:
        """The bytes that were adopted, as text for people, as far as Spark remembers them."""
        return self._at_least(_UNKNOWN if self.bytes_adopted is None else in_bytes(self.bytes_adopted))

    def _at_least(self, total: str) -> str:
        remembered = sum(t.duration_s is not None for t in self.timings)
        return f"at least {total}" if 0 < remembered < self.steps else total

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                str(t.step),
                str(t.epoch),
                str(t.partitions),
                str(t.bins),
                _UNKNOWN if t.bytes is None else in_bytes(t.bytes),
                _UNKNOWN if t.duration_s is None else in_seconds(t.duration_s),
                _UNKNOWN if t.adopt_s is None else in_seconds(t.adopt_s),
            )
            for t in self.timings
        ]


_HEAD = ("step", "epoch", "partitions", "bins", "bytes", "epoch took", "adopting took")
_LEFT_OUT = ("...",) * len(_HEAD)


def report_of(
    id: str,
    plan: MigrationPlan,
    history: Sequence[dict[str, Any]],
    epochs: Sequence[EpochProgress],
    *,
    steps: int,
    cancelled: bool,
    audit: AuditReport | None = None,
    cancelled_because: str | None = None,
    undone: str | None = None,
    rollback: MigrationReport | None = None,
) -> MigrationReport:
    """The report of a migration.

    Parameters
    ----------
    id : str
        Id of the migration.
    plan : MigrationPlan
        Its plan.
    history : sequence of dict
        Its rows of `Controller.history`. The oldest may be gone.
    epochs : sequence of EpochProgress
        The epochs that Spark remembers.
    steps : int
        How many steps took effect.
    cancelled : bool
        Whether it was cancelled before its last step.
    audit : AuditReport, optional
        What the audits of its bins have found.
    cancelled_because, undone : str, optional
        Why it was cancelled or rolled back, as the driver says.
    rollback : MigrationReport, optional
        The report of the migration that undid it.
    """
    by_epoch = {e.epoch: e for e in epochs}
    first = next((r["epoch"] for r in history if r["step"] == 1), None)
    last = max((r["epoch"] for r in history), default=None)
    steps_taken = {r["epoch"]: _adopting(r["epoch"], by_epoch, on_demand=plan.on_demand) for r in history}
    taken = [e for adopting in steps_taken.values() for e in adopting]

    is_known = bool(taken) or not steps

    def total(name: str) -> int | None:
        return _sum(name, taken) if is_known else None

    def timing(row: dict[str, Any]) -> StepTiming:
        adopting = steps_taken[row["epoch"]]
        epoch = adopting[0] if adopting else None
        return StepTiming(
            row["step"],
            epoch=row["epoch"],
            bins=row["bins_moved"],
            partitions=row["partitions"],
            duration_s=None if epoch is None else epoch.duration_s,
            bytes=_sum("bytes_adopted", adopting) if adopting else None,
            adopt_s=None if epoch is None else epoch.metrics.get("adopt_s", 0),
        )

    return MigrationReport(
        id=id,
        strategy=plan.strategy,
        steps=steps,
        bins_moved=sum(len(s.moves) for s in plan.steps[:steps]),
        first_epoch=first,
        last_epoch=last,
        bins_prepared=total("bins_prepared"),
        bins_shipped=total("bins_shipped"),
        bins_from_checkpoint=total("bins_from_checkpoint"),
        bins_recopied=total("bins_recopied"),
        rows_adopted=total("rows_adopted"),
        bytes_adopted=total("bytes_adopted"),
        adopt_s=sum(e.metrics.get("adopt_s", 0.0) for e in taken) if is_known else None,
        longest_epoch_s=max((e.duration_s for e in taken), default=0) if is_known else None,
        cancelled=cancelled,
        cancelled_because=cancelled_because,
        undone=undone,
        rollback=rollback,
        audit=audit,
        timings=tuple(timing(r) for r in history),
        epochs=tuple(epochs),
    )


def _sum(metric: str, epochs: Iterable[EpochProgress]) -> int:
    return sum(int(e.metrics.get(metric, 0)) for e in epochs)


def _adopting(epoch: int, by_epoch: Mapping[int, EpochProgress], *, on_demand: bool) -> list[EpochProgress]:
    """The epochs in which the bins of a step arrived, as far as known; on demand, until none is awaited."""
    found = []
    while (progress := by_epoch.get(epoch)) is not None:
        found.append(progress)
        if not (on_demand and progress.metrics.get("bins_awaited")):
            break
        epoch += 1
    return found


def adopt_rate(epochs: Iterable[EpochProgress], *, prepared: bool) -> float | None:
    """Bytes that a partition adopted in a second, over those steps in `epochs` that adopted rows in one way.

    None if there was no such step. Steps with whole files, or with bins of both kinds, are not counted.

    Parameters
    ----------
    epochs : iterable of EpochProgress
    prepared : bool
        Whether to count bins that were copied before their step, which are a hundred times as fast, or others.
    """
    taken = [
        e
        for e in epochs
        # Rows in whole files are not counted.
        if e.bins_adopted
        and e.metrics.get("rows_adopted")
        and e.metrics.get("bins_prepared", 0) == (e.bins_adopted if prepared else 0)
        # Bins on demand are adopted while rows are processed, and not timed.
        and not e.metrics.get("bins_awaited")
        and e.metrics.get("adopt_s")
    ]
    seconds = sum(e.metrics.get("adopt_s", 0) for e in taken)
    moved = sum(e.metrics.get("bytes_adopted", 0) for e in taken)
    return moved / seconds if seconds and moved else None
