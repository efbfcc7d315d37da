"""Draws pictures of a query's epochs and of its routing table. Only this module needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from binshift.epoch_progress import EpochProgress
from binshift.libraries import needed_for
from binshift.planning.routing import RoutingTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["overview", "timeline"]

_LINE, _MARK, _STEPS, _FAINT = "#4477aa", "#ee6677", "#228833", "#888888"


def timeline(epochs: Sequence[EpochProgress], steps: Mapping[int, int], title: str) -> Figure:
    """Duration of each epoch and number of partitions, with the steps of migrations marked.

    Parameters
    ----------
    epochs : sequence of EpochProgress
        The epochs, in their order.
    steps : mapping of int to int
        Number of bins that moved, by the epoch of the step.
    title : str
        Title of the picture.

    Raises
    ------
    ConfigurationError
        If matplotlib is not installed.
    """
    figure: Figure = _matplotlib().Figure(figsize=(9, 4.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    _draw_timeline(above, below, epochs, steps)
    above.set_title(title)
    return figure


def overview(
    table: RoutingTable,
    weights: Sequence[float] | None,
    label: str,
    epochs: Sequence[EpochProgress],
    steps: Mapping[int, int],
) -> Figure:
    """The bins of each partition as a heat map, and below it the timeline.

    Parameters
    ----------
    table : RoutingTable
        The table in force.
    weights : sequence of float or None
        The number that the colour of each bin shows; None if nothing was measured.
    label : str
        What `weights` stand for.
    epochs, steps
        See `timeline`.

    Raises
    ------
    ConfigurationError
        If matplotlib is not installed.
    """
    figure: Figure = _matplotlib().Figure(figsize=(9, 8), layout="constrained")
    heat, above, below = figure.subplots(3, 1, height_ratios=[4, 3, 1])
    below.sharex(above)
    _draw_bins(figure, heat, table, weights, label)
    _draw_timeline(above, below, epochs, steps)
    return figure


def _draw_bins(
    figure: Figure, axes: Any, table: RoutingTable, weights: Sequence[float] | None, label: str
) -> None:
    """Draws a row for each partition, heaviest bins first, so that lengths and colours are comparable."""
    lib = _matplotlib()
    values = [1.0] * table.bins if weights is None else list(weights)
    rows = [sorted((values[b] for b in table.bins_of(p)), reverse=True) for p in range(table.partitions)]
    width = max(len(row) for row in rows)
    grid = lib.masked_invalid([[*row, *[float("nan")] * (width - len(row))] for row in rows])
    image = axes.imshow(grid, aspect="auto", interpolation="nearest", cmap="viridis")
    if weights is not None:
        figure.colorbar(image, ax=axes, label=label)
    axes.set_title(f"{table.bins} bins in {table.partitions} partitions, epoch {table.epoch}")
    axes.set_xlabel("bins of the partition" + ("" if weights is None else ", heaviest first"))
    axes.set_ylabel("partition")
    axes.yaxis.set_major_locator(lib.MaxNLocator(integer=True))


def _draw_timeline(above: Any, below: Any, epochs: Sequence[EpochProgress], steps: Mapping[int, int]) -> None:
    numbers = [e.epoch for e in epochs]
    seconds = [e.duration_s for e in epochs]
    above.plot(numbers, seconds, color=_LINE, marker=".", label="an epoch, trigger to commit")
    if seconds:
        median = sorted(seconds)[len(seconds) // 2]
        above.axhline(median, color=_FAINT, linewidth=0.8, linestyle=":", label=f"median {median:.2f} s")
    for i, epoch in enumerate(e for e in sorted(steps) if e in set(numbers)):
        above.axvline(epoch, color=_MARK, alpha=0.35, linewidth=2, label="" if i else "bins move")
    above.set_ylabel("seconds")
    # Leaves room for the legend.
    above.set_ylim(0, 1.25 * (max(seconds, default=0) or 1))
    above.legend(loc="upper right", ncols=3)
    below.step(numbers, [e.partitions for e in epochs], where="mid", color=_STEPS)
    below.set_ylim(bottom=0)
    below.set_ylabel("partitions")
    below.set_xlabel("epoch")
    locator = _matplotlib().MaxNLocator
    below.yaxis.set_major_locator(locator(integer=True, nbins=4))
    below.xaxis.set_major_locator(locator(integer=True))


def _matplotlib() -> Any:
    """Imports matplotlib. A Figure made without pyplot keeps no global state and needs no display."""
    with needed_for("a plot", extra="plot"):
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415
        from numpy.ma import masked_invalid  # noqa: PLC0415

    class Picture(Figure):
        """A figure that a notebook shows, whatever backend it uses."""

        def _repr_png_(self) -> bytes:
            png = BytesIO()
            self.savefig(png, format="png", dpi=100)
            return png.getvalue()

    return SimpleNamespace(Figure=Picture, MaxNLocator=MaxNLocator, masked_invalid=masked_invalid)
