"""Pictures of what runs showed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from openloop.results import Record

mpl.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["pictures"]


def pictures(records: Sequence[Record], directory: Path) -> list[tuple[str, Path]]:
    """Draws all that there are records for; titles and files."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for experiment in sorted({r.experiment for r in records if r.latencies}):
        own = [r for r in records if r.experiment == experiment]
        drawn.append(_timeline(experiment, own, directory))
        drawn.append(_ccdf(experiment, own, directory))
    of = {e: [r for r in records if r.experiment == e] for e in ("M1", "M9")}
    if of["M1"]:
        drawn.append(_latency_by_duration(of["M1"], directory))
    if of["M9"]:
        drawn.append(_overhead(of["M9"], directory))
    return drawn


def _timeline(experiment: str, records: Sequence[Record], directory: Path) -> tuple[str, Path]:
    """Latency of events around the action; epochs that adopted bins are marked."""
    figure, axes = _axes("time since the action, s", "latency, s")
    for record in _typical(records):
        waits = [(w["at"], w["latency"]) for w in record.latencies]
        (line,) = axes.plot(*zip(*waits, strict=True), marker=".", linewidth=1, label=_label(record))
        steps = [e["at"] + e["took_ms"] / 1000 for e in record.epochs if e["adopted"]]
        axes.plot(steps, [_at(waits, t) for t in steps], "x", color=line.get_color())
    axes.set_yscale("log")
    title = f"{experiment}: latency of events (the median run of each); crosses are epochs at which bins moved"
    return _saved(figure, axes, title, directory / f"{experiment}-timeline.png")


def _typical(records: Sequence[Record]) -> list[Record]:
    """Of each kind of run, the repetition whose largest latency is the median."""
    ordered = [
        sorted(same, key=lambda r: float(r.values["longest_latency"])) for same in _kinds(records).values()
    ]
    return [same[(len(same) - 1) // 2] for same in ordered]


def _kinds(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The repetitions of each kind of run, by its label."""
    kinds: dict[str, list[Record]] = {}
    for record in records:
        kinds.setdefault(_label(record), []).append(record)
    return kinds


def _ccdf(experiment: str, records: Sequence[Record], directory: Path) -> tuple[str, Path]:
    """How many of the events from the action on waited longer, over all repetitions."""
    figure, axes = _axes("latency, s", "part of the events that waited longer")
    for label, same in _kinds(records).items():
        ordered = np.sort([w["latency"] for r in same for w in r.latencies if w["at"] + w["latency"] > 0])
        axes.step(ordered, 1 - np.arange(len(ordered)) / len(ordered), where="post", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    title = f"{experiment}: latency from the action on"
    return _saved(figure, axes, title, directory / f"{experiment}-ccdf.png")


def _latency_by_duration(records: Sequence[Record], directory: Path) -> tuple[str, Path]:
    figure, axes = _axes("duration of the migration, s", "largest latency, s")
    for label, same in _kinds(records).items():
        values = [r.values for r in same]
        axes.plot([v["seconds"] for v in values], [v["longest_latency"] for v in values], "o", label=label)
    axes.set_yscale("log")
    return _saved(figure, axes, "M1: largest latency and duration", directory / "M1-duration.png")


def _overhead(records: Sequence[Record], directory: Path) -> tuple[str, Path]:
    figure, axes = _axes("bins", "rows per second ÷ stock")
    counting = [r for r in records if r.case["load"] == "key-count"]
    stock = {r.repeat: r.values["rows_per_second"] for r in counting if r.case["provider"] == "stock"}
    points = [
        (r.case["bins"], r.values["rows_per_second"] / stock[r.repeat])
        for r in counting
        if "bins" in r.case and r.repeat in stock
    ]
    if points:
        axes.plot(*zip(*points, strict=True), "o", label="key-count")
    axes.axhline(1, color="#888888", linewidth=1)
    axes.set_xscale("log", base=2)
    return _saved(figure, axes, "M9: throughput by number of bins", directory / "M9-bins.png")


def _axes(x: str, y: str) -> tuple[Any, Any]:
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _saved(figure: Any, axes: Any, title: str, file: Path) -> tuple[str, Path]:
    axes.set_title(title)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small")
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return title, file


def _label(record: Record) -> str:
    return ", ".join(f"{v:g} {k}" if isinstance(v, (int, float)) else str(v) for k, v in record.case.items())


def _at(waits: Sequence[tuple[float, float]], at: float) -> float:
    """The latency of the events that were due last before a moment."""
    return next((latency for due, latency in reversed(waits) if due <= at), waits[0][1])
