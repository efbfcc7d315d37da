"""Draws the results of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from openloop.experiment import Experiment, Figure
from openloop.results import Record

mpl.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["draw", "pictures"]

#: Colours by the action of a run, so that no two in a picture look alike; dashed if nothing is prepared.
COLOURS = {
    "idle": "#999999",
    "stock": "#000000",
    "all-at-once": "#cc3311",
    "batched": "#0077bb",
    "optimized": "#009988",
    "fluid": "#aa3377",
    "on-demand": "#ee7733",
}
#: For runs that differ in something else too.
OTHERS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#bbbbbb",
    "#222255",
    "#994455",
    "#117733",
)


def pictures(records: Sequence[Record], directory: Path) -> list[tuple[str, Path]]:
    """Draws everything for which there are records; returns titles and files."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for experiment in sorted({r.experiment for r in records if r.latencies}):
        own = [r for r in records if r.experiment == experiment]
        drawn.append(_timeline(experiment, own, directory))
        drawn.append(_ccdf(experiment, own, directory))
    of = {e: [r for r in records if r.experiment == e] for e in ("rescale", "throughput")}
    if of["rescale"]:
        drawn.append(_latency_by_duration(of["rescale"], directory))
    if of["throughput"]:
        drawn.append(_overhead(of["throughput"], directory))
    return drawn


def draw(
    chart: str,
    title: str,
    records: Sequence[Record],
    found: Sequence[tuple[Experiment, Sequence[Figure]]],
    directory: Path,
) -> Path | None:
    """The picture of a section of the published report; None if there is nothing to draw."""
    directory.mkdir(parents=True, exist_ok=True)
    id = found[0][0].id
    own = [r for r in records if r.experiment == id]
    if chart == "timeline" and any(r.latencies for r in own):
        return _timeline(id, own, directory)[1]
    if chart == "bins" and own:
        return _overhead(own, directory)[1]
    # Experiments that share a picture share the beginning of their ids.
    name = id if len(found) == 1 else id.rsplit("-", 1)[0]
    return _bars(title, found, directory / f"{name}-bars.png") if chart == "bars" else None


def _bars(title: str, found: Sequence[tuple[Experiment, Sequence[Figure]]], file: Path) -> Path | None:
    """The first measure of a section, by what it is of; lines are from the lowest to the highest repetition."""
    if len(found) > 1:
        shown = [(e.title.removeprefix("NEXMark ").split(",")[0], figures[0]) for e, figures in found]
        measure = found[0][1][0].what
    else:
        figures = found[0][1]
        measure = figures[0].what.partition(": ")[0]
        shown = [
            (f.what.removeprefix(measure).removeprefix(": ") or measure, f)
            for f in figures
            if f.what.startswith(measure)
        ]
        if len(shown) == 1:
            measure = _common([f.what for f in figures])
            shown = [(f.what.removeprefix(measure), f) for f in figures]
    figure, axes = plt.subplots(figsize=(8, 1 + 0.4 * len(shown)), layout="constrained")
    names, values = [name for name, _ in shown], [f.value for _, f in shown]
    errors = [[f.value - f.low for _, f in shown], [f.high - f.value for _, f in shown]]
    bars = axes.barh(names, values, xerr=errors, color=COLOURS["batched"], ecolor="#333333", height=0.6)
    axes.bar_label(bars, labels=[f.median for _, f in shown], padding=6, fontsize="small")
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.set_xlabel(measure.strip(" ,"))
    return _saved(figure, axes, title, file)[1]


def _common(names: Sequence[str]) -> str:
    """The common beginning of all names."""
    ends = (i for i, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1)
    return names[0][: next(ends, min(map(len, names)))]


def _timeline(experiment: str, records: Sequence[Record], directory: Path) -> tuple[str, Path]:
    """Latency of events around the action; epochs that adopted bins are marked."""
    figure, axes = _axes("time since the action, s", "latency, s")
    typical = _typical(records)
    styles = _styles([_label(r) for r in typical])
    for record in typical:
        waits = [(w["at"], w["latency"]) for w in record.latencies]
        label = _label(record)
        (line,) = axes.plot(*zip(*waits, strict=True), linewidth=1.2, label=label, **styles[label])
        steps = [e["at"] + e["took_ms"] / 1000 for e in record.epochs if e["adopted"]]
        axes.plot(steps, [_at(waits, t) for t in steps], "x", color=line.get_color())
    axes.set_yscale("log")
    title = "latency of events; crosses are epochs at which bins moved"
    return _saved(figure, axes, title, directory / f"{experiment}-timeline.png")


def _typical(records: Sequence[Record]) -> list[Record]:
    """For each kind of run, the repetition whose largest latency is the median."""
    ordered = [
        sorted(same, key=lambda r: float(r.values["longest_latency"])) for same in _kinds(records).values()
    ]
    return [same[(len(same) - 1) // 2] for same in ordered]


def _styles(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and line of each label; no two are the same."""
    actions = [_action(label) for label in labels]
    dashes = ["--" if "unprepared" in label else "-" for label in labels]
    if len(set(zip(actions, dashes, strict=True))) == len(labels) and set(actions) <= COLOURS.keys():
        colours = [COLOURS[action] for action in actions]
    else:
        colours = [OTHERS[i % len(OTHERS)] for i in range(len(labels))]
    pairs = zip(labels, colours, dashes, strict=True)
    return {label: {"color": colour, "linestyle": dash} for label, colour, dash in pairs}


def _action(label: str) -> str:
    """The action of a run, from its label."""
    return next((part for part in label.split(", ") if part in COLOURS), "")


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
    return _saved(figure, axes, "largest latency and duration", directory / "rescale-duration.png")


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
    return _saved(figure, axes, "throughput by number of bins", directory / "throughput-bins.png")


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
    return ", ".join(f"{v:,} {k}" if isinstance(v, int | float) else str(v) for k, v in record.case.items())


def _at(waits: Sequence[tuple[float, float]], at: float) -> float:
    """The latency of the events that were due last before a moment."""
    return next((latency for due, latency in reversed(waits) if due <= at), waits[0][1])
