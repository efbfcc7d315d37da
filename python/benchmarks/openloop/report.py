"""The report: figures next to the expected ones, and pictures; as text, HTML, JSON and Markdown."""

from __future__ import annotations

import base64
import html
import json
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil
import pyspark

import binshift
from openloop.experiment import Experiment, Figure
from openloop.pictures import pictures
from openloop.published import markdown
from openloop.results import MAX_OTHERS, Record, final_states, write_tables
from openloop.sections import Section

__all__ = ["Report"]

STYLE = (
    "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:left}"
    "img{max-width:100%}"
)


@dataclass(frozen=True)
class Report:
    """The results of some runs."""

    experiments: Sequence[Experiment]
    records: Sequence[Record]
    size: str
    #: The questions of the published report.
    sections: Sequence[Section] = ()

    def __str__(self) -> str:
        lines = [f"{machine()}; size {self.size}; medians (lowest to highest; runs)"]
        for experiment, figures in self._sections:
            lines += ["", f"{experiment.id}: {experiment.title}"]
            lines += [f"  {who}: {claim}" for who, claim in experiment.claims.items()]
            lines += [f"  {f.what:<80} {f}" for f in figures]
        return "\n".join([*lines, "", *self._notes])

    def write(self, directory: Path) -> None:
        """Writes `report.html`, `report.json`, the pictures, and the runs as parquet."""
        write_tables(self.records, directory)
        (directory / "report.json").write_text(json.dumps(self._summary(), indent=2))
        (directory / "report.html").write_text("".join(self._html(pictures(self._sound, directory))))

    def publish(self, file: Path, beside: Path) -> None:
        """Writes the part of a Markdown file that is generated, its pictures, and the runs as parquet."""
        write_tables(self.records, beside)
        runs = f"{machine()}; size `{self.size}`. Medians (lowest to highest; runs)."
        text = markdown(self._sections, self.sections, self._sound, file, beside, runs, "", *self._notes)
        file.write_text(text)

    @property
    def _notes(self) -> Iterator[str]:
        """How much the runs were disturbed, and whether they ended with the expected state."""
        others = [r.values["others"] for r in self.records if "others" in r.values]
        if others:
            typical, most = (f"{share:.1%}" for share in (statistics.median(others), max(others)))
            yield f"Other processes took {typical} of a run's processor time in the median, {most} at most."
        if disturbed := len(self.records) - len(self._sound):
            yield f"{disturbed} runs, where it was more than {MAX_OTHERS:.0%}, do not count."
        for workload, states in final_states(self.records).items():
            runs = sum(map(len, states.values()))
            same = "the same" if len(states) == 1 else f"DIFFERENT ({states})"
            yield f"The final state of {runs} runs of {workload} is {same}."

    @cached_property
    def _sound(self) -> list[Record]:
        return [r for r in self.records if not r.is_disturbed]

    @cached_property
    def _sections(self) -> list[tuple[Experiment, list[Figure]]]:
        """Experiments that have runs."""
        runs: dict[str, list[Record]] = {}
        for record in self._sound:
            runs.setdefault(record.experiment, []).append(record)
        looked_at = [(e, runs.get(e.runs_of or e.id)) for e in self.experiments]
        return [(e, e.figures(own)) for e, own in looked_at if own]

    def _summary(self) -> dict[str, object]:
        return {
            "machine": machine(),
            "size": self.size,
            "experiments": {
                e.id: {"title": e.title, "claims": dict(e.claims), "figures": {f.what: str(f) for f in figures}}
                for e, figures in self._sections
            },
        }

    def _html(self, images: Sequence[tuple[str, Path]]) -> Iterator[str]:
        yield f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><h1>binshift benchmarks</h1>"
        yield f"<p>{html.escape(machine())}; size {self.size}; medians (lowest to highest; runs)</p>"
        for experiment, figures in self._sections:
            yield f"<h2>{experiment.id}: {html.escape(experiment.title)}</h2>"
            yield from (f"<p>{who}: {html.escape(claim)}</p>" for who, claim in experiment.claims.items())
            yield "<table>"
            yield from (f"<tr><td>{html.escape(f.what)}</td><td>{f}</td></tr>" for f in figures)
            yield "</table>"
        for title, file in images:
            data = base64.b64encode(file.read_bytes()).decode()
            yield f"<h3>{html.escape(title)}</h3><img src='data:image/png;base64,{data}'>"


def machine() -> str:
    """The machine on which the figures were measured."""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, Python {platform.python_version()}, "
        f"Spark {pyspark.__version__}, binshift {binshift.__version__}"
    )
