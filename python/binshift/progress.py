"""A bar that follows a migration, in a terminal and in a notebook."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from binshift.display import in_bytes
from binshift.epoch_log import EpochProgress

if TYPE_CHECKING:
    from binshift.migration import MigrationStatus
    from binshift.plan import MigrationPlan
    from binshift.report import MigrationReport

__all__ = ["ProgressBar", "has_viewer"]


def has_viewer() -> bool:
    """Whether somebody looks: stderr is a terminal, or this runs in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # A notebook's shell has a kernel; that of a terminal has none.
    return sys.stderr.isatty() or hasattr(shell, "kernel")


class ProgressBar:
    """Counts bins whose step has been committed; shows bytes, bins a second and the time left.

    Parameters
    ----------
    plan : MigrationPlan
        What is followed.
    is_shown : bool
        Without it, nothing is written.
    file : object, optional
        Where to write; stderr by default.
    """

    def __init__(self, plan: MigrationPlan, is_shown: bool = True, file: Any = None) -> None:
        done, self._after = 0, [0]
        for step in plan.steps:
            done += len(step.moves)
            self._after.append(done)
        self._bytes: dict[int, int] = {}
        self._bar = tqdm(
            total=done,
            unit="bin",
            desc="migration",
            disable=not is_shown,
            file=file,
            dynamic_ncols=file is None,
            # The bar is drawn when something has changed, and that is seldom.
            mininterval=0,
            miniters=0,
        )

    def update(self, status: MigrationStatus, epoch: EpochProgress | None) -> None:
        """Shows where the migration stands.

        Parameters
        ----------
        status : MigrationStatus
            Of the migration.
        epoch : EpochProgress or None
            The newest epoch that the query has reported.
        """
        if epoch is not None and epoch.bins_adopted:
            self._bytes[epoch.epoch] = epoch.metrics.get("bytes_adopted", 0)
        self._bar.set_description_str(str(status.state), refresh=False)
        self._bar.set_postfix_str(
            f"{in_bytes(sum(self._bytes.values()))}, step {status.steps_done}/{status.steps_total}",
            refresh=False,
        )
        self._bar.n = self._after[min(status.steps_done, len(self._after) - 1)]
        self._bar.refresh()

    def finish(self, report: MigrationReport) -> None:
        """Shows the totals of the report, which has what the newest epochs did too."""
        self._bar.n = report.bins_moved
        self._bar.set_postfix_str(f"{in_bytes(report.bytes_adopted)}, {report.steps} steps", refresh=True)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
