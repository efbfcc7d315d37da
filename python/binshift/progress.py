"""A bar that follows a migration, in a terminal and in a notebook."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from binshift.display import in_bytes, ipython_shell
from binshift.epoch_progress import EpochProgress

if TYPE_CHECKING:
    from binshift.planning.plan import MigrationPlan
    from binshift.report import MigrationReport
    from binshift.status import MigrationStatus

__all__ = ["ProgressBar", "has_viewer"]


def has_viewer() -> bool:
    """True if somebody can see it: stderr is a terminal, or this runs in a notebook."""
    # The shell of a notebook has a kernel, and that of a terminal has none.
    return sys.stderr.isatty() or hasattr(ipython_shell(), "kernel")


class ProgressBar:
    """Counts bins whose step has been committed and not undone; shows bytes, bins a second and the time left.

    Parameters
    ----------
    plan : MigrationPlan
        The plan to follow.
    is_shown : bool
        Whether to write anything.
    file : object, optional
        Where to write; stderr by default.
    """

    def __init__(self, plan: MigrationPlan, *, is_shown: bool = True, file: Any = None) -> None:
        done, self._after = 0, [0]
        for step in plan.steps:
            done += len(step.moves)
            self._after.append(done)
        self._bytes: dict[int, float] = {}
        self._bar: Any = None
        if is_shown:
            # Imported only if a bar is wanted, because it warns in notebooks without widgets.
            from tqdm.auto import tqdm  # noqa: PLC0415

            self._bar = tqdm(total=done, unit="bin", desc="migration", file=file, dynamic_ncols=file is None)

    def update(self, status: MigrationStatus, epoch: EpochProgress | None) -> None:
        """Shows where the migration stands.

        Parameters
        ----------
        status : MigrationStatus
            Status of the migration.
        epoch : EpochProgress or None
            The newest epoch that the query has reported.
        """
        if epoch is not None and epoch.bins_adopted:
            self._bytes[epoch.epoch] = epoch.metrics.get("bytes_adopted", 0)
        steps = f"step {status.steps_done}/{status.steps_total}"
        moved = f"{in_bytes(sum(self._bytes.values()))}, " if self._bytes else ""
        in_place = min(status.steps_done, len(self._after) - 1) - status.steps_undone
        self._show(str(status.state), self._after[max(in_place, 0)], moved + steps)

    def finish(self, report: MigrationReport) -> None:
        """Shows the totals of the report, which include the newest epochs."""
        text = f"{report._size}, {report.steps} steps"
        end = "rolled back" if report.undone is not None else "cancelled" if report.cancelled else "finished"
        self._show(end, report.bins_moved - (report.rollback.bins_moved if report.rollback else 0), text)

    def _show(self, state: str, bins: int, text: str) -> None:
        if self._bar is not None:
            self._bar.set_description_str(state, refresh=False)
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.n = bins
            self._bar.refresh()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
