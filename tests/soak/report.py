"""The report of a soak: a table of the resources used at the beginning and at the end, and plots."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from devtools.results import read
from soak.driver import WORKLOAD

_MB = 1 << 20
#: The plots: a title, the names of the series, and the divisor of the unit.
_PLOTS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("resident memory, MB", ("driver rss", "executor rss"), _MB),
    ("heap of the driver after a collection, MB", ("heap",), _MB),
    ("old generation, MB", ("driver old", "executor old"), _MB),
    ("disk, MB", ("disk of checkpoints", "disk of executors"), _MB),
    ("threads", ("driver threads", "executor threads"), 1),
    ("open files", ("driver files", "executor files"), 1),
    ("blocks and broadcasts that the driver knows", ("blocks", "broadcasts"), 1),
    ("executors", ("executors",), 1),
)


def write(folder: Path, wrong: Sequence[str]) -> None:
    """Writes `report.md` and `soak.png` from the notes of a run."""
    run = folder / "run"
    notes = {name: read(run / f"{name}.jsonl") for name in ("samples", "driver", "events", "plans", "refused")}
    began = min(n["t"] for n in notes["samples"])
    picture(folder / "soak.png", notes, began)
    (folder / "report.md").write_text(text(run, notes, began, wrong))


def text(run: Path, notes: dict[str, list[dict[str, Any]]], began: float, wrong: Sequence[str]) -> str:
    minutes = (max(n["t"] for n in notes["samples"]) - began) / 60
    lines = ["| what | number |", "|---|---|", f"| minutes | {minutes:.0f} |"]
    for name in WORKLOAD:
        epochs = len({f.stem.split("-")[0] for f in (run / name / "outputs").glob("[0-9]*.json")})
        state = run / name / "state.json"
        steps = json.loads(state.read_text())["steps"] if state.exists() else "?"
        lines.append(f"| epochs of {name}; steps that the routing log still has | {epochs}; {steps} |")
    lines.append(f"| plans submitted | {len(notes['plans'])} |")
    lines += [f"| {what} | {n} |" for what, n in sorted(Counter(e["event"] for e in notes["events"]).items())]
    lines.append(f"| outputs or states that differ from Spark's own provider | {len(wrong)} |")
    lines += ["", "| taken, median of | first third | last third |", "|---|---|---|"]
    for _title, names, unit in _PLOTS:
        for name in names:
            values = series(notes, name, began)
            third = len(values) // 3
            if third:
                first, last = (median(v for _, v in part) / unit for part in (values[:third], values[-third:]))
                lines.append(f"| {name}{', MB' if unit == _MB else ''} | {first:,.0f} | {last:,.0f} |")
    return "\n".join([*lines, "", *wrong, ""])


def series(notes: dict[str, list[dict[str, Any]]], name: str, began: float) -> list[tuple[float, float]]:
    """A series: its minutes and its values."""
    found = [n for kind in ("samples", "driver") for n in notes[kind] if name in n]
    return [((n["t"] - began) / 60, n[name]) for n in found]


def picture(file: Path, notes: dict[str, list[dict[str, Any]]], began: float) -> None:
    figure = Figure(figsize=(11, 12), layout="constrained")
    for axes, (title, names, unit) in zip(figure.subplots(4, 2).flat, _PLOTS, strict=True):
        for name in names:
            values = series(notes, name, began)
            axes.plot(
                [t for t, _ in values], [v / unit for _, v in values], marker=".", markersize=3, label=name
            )
        for event in notes["events"]:
            colour = "#ee6677" if event["event"] == "driver killed" else "#bbbbbb"
            axes.axvline((event["t"] - began) / 60, color=colour, linewidth=0.6)
        axes.set_title(title, fontsize=9)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7, loc="lower right")
        axes.set_xlabel("minutes", fontsize=8)
    figure.savefig(file, dpi=90)
