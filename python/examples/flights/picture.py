"""The picture of the demo: both ways to rescale the same state, one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from stream import Epoch

mpl.use("Agg")
import matplotlib.pyplot as plt

_LIVE, _STOCK, _MARK, _STEPS = "#4477aa", "#997700", "#ee6677", "#228833"


def draw(live: Sequence[Epoch], moving: Sequence[bool], stock: Sequence[Epoch], picture: Path) -> None:
    """Saves latencies over time; `moving` says of each live epoch whether a rescale was under way."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(9, 5), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    times = _draw_latencies(above, live, _LIVE, "binshift, live")
    if stock:
        _draw_latencies(above, stock, _STOCK, "Spark's own way: stop, repartition, start")
    for i, (t, _) in enumerate((t, m) for t, m in zip(times, moving, strict=True) if m):
        above.axvline(t, color=_MARK, alpha=0.15, linewidth=4, label="" if i else "binshift moves bins")
    above.set_ylabel("arrival to commit, s")
    above.set_ylim(bottom=0)
    above.legend(loc="upper right")
    partitions = [e.partitions for e in live]
    above.set_title(f"A running query goes from {partitions[0]} to {max(partitions)} state partitions and back")
    below.step(times, partitions, where="post", color=_STEPS)
    below.set_ylabel("partitions")
    below.set_yticks(sorted({0, *partitions}))
    below.set_xlabel("time, s")
    figure.savefig(picture, dpi=120)
    plt.close(figure)


def _draw_latencies(axes: Axes, epochs: Sequence[Epoch], colour: str, label: str) -> list[float]:
    times = [e.committed - epochs[0].committed for e in epochs]
    axes.plot(times, [e.latency for e in epochs], color=colour, marker=".", label=label)
    return times
