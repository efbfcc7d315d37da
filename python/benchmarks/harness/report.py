"""The report: figures beside what the papers claim, and pictures, as HTML and as Markdown."""

from __future__ import annotations

import base64
import html
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import psutil
import pyspark

import binshift
from harness.experiment import Experiment
from harness.pictures import pictures
from harness.results import Record, Results

__all__ = ["write_report"]

STYLE = (
    "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:left}"
    "img{max-width:100%}"
)


def write_report(
    results: Results, experiments: Sequence[Experiment], size: str, directory: Path, markdown: Path | None
) -> None:
    """Writes `report.html`, `report.json` and the tables as parquet; and Markdown, where a file is named."""
    directory.mkdir(parents=True, exist_ok=True)
    records = results.all()
    sections = [(e, _figures(e, records)) for e in _once(experiments)]
    sections = [(e, figures) for e, figures in sections if figures]
    images = pictures(records, directory / "pictures")
    results.save_tables(directory)
    summary = {
        "machine": machine(),
        "size": size,
        "experiments": {
            e.id: {"title": e.title, "claim": e.claim, "figures": dict(figures)} for e, figures in sections
        },
    }
    (directory / "report.json").write_text(json.dumps(summary, indent=2))
    (directory / "report.html").write_text(_html(sections, images, size))
    if markdown:
        _write_markdown(markdown, sections, images, size)


def machine() -> str:
    """What the figures were measured on."""
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    return (
        f"{cores} cores ({platform.machine()}), {memory:.0f} GiB, Python {platform.python_version()}, "
        f"Spark {pyspark.__version__}, binshift {binshift.__version__}"
    )


def _once(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Experiments that share an id share their results: a section each for the first."""
    return list({e.id: e for e in reversed(experiments)}.values())[::-1]


def _figures(experiment: Experiment, records: Sequence[Record]) -> list[tuple[str, str]]:
    own = [r for r in records if r.experiment == experiment.id]
    return [(f.what, str(f)) for f in experiment.figures(own)] if own else []


def _html(
    sections: Sequence[tuple[Experiment, list[tuple[str, str]]]], images: Sequence[tuple[str, Path]], size: str
) -> str:
    body = [f"<h1>binshift benchmarks</h1><p>{html.escape(machine())}; size {size}</p>"]
    for experiment, figures in sections:
        rows = "".join(f"<tr><td>{html.escape(w)}</td><td>{html.escape(v)}</td></tr>" for w, v in figures)
        body.append(
            f"<h2>{experiment.id}: {html.escape(experiment.title)}</h2>"
            f"<p>claimed: {html.escape(experiment.claim)}</p><table>{rows}</table>"
        )
    for title, file in images:
        data = base64.b64encode(file.read_bytes()).decode()
        body.append(f"<h3>{html.escape(title)}</h3><img src='data:image/png;base64,{data}'>")
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{''.join(body)}"


def _write_markdown(
    file: Path,
    sections: Sequence[tuple[Experiment, list[tuple[str, str]]]],
    images: Sequence[tuple[str, Path]],
    size: str,
) -> None:
    """Replaces what is below the line that says so; what is above it is written by hand."""
    mark = "<!-- below: written by `make bench-report` -->"
    head = file.read_text().split(mark)[0] if file.exists() else "# Benchmarks\n\n"
    lines = [mark, "", f"{machine()}; size `{size}`. Median of the repetitions (lowest to highest).", ""]
    for experiment, figures in sections:
        lines += [f"### {experiment.id}: {experiment.title}", "", f"Claimed: {experiment.claim}.", ""]
        lines += ["| measured | |", "|---|---|", *(f"| {w} | {v} |" for w, v in figures), ""]
    beside = file.parent / "docs" / "benchmarks"
    beside.mkdir(parents=True, exist_ok=True)
    for title, image in images:
        (beside / image.name).write_bytes(image.read_bytes())
        lines += [f"![{title}](docs/benchmarks/{image.name})", ""]
    file.write_text(head + "\n".join(lines))
