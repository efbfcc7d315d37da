"""Writes BENCHMARKS.md: answers, the method, and a section for each question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from openloop.experiment import Experiment, Figure
from openloop.pictures import draw
from openloop.results import Record
from openloop.sections import Section, answered, claimed, tables

__all__ = ["BEGIN", "END", "markdown"]

BEGIN = "<!-- Below: written by `make bench-report`. -->"
#: The text below this line is written by hand, and kept.
END = "<!-- Above: written by `make bench-report`. -->"
METHOD = Path(__file__).parents[1] / "method.md"

Found = Sequence[tuple[Experiment, Sequence[Figure]]]


def markdown(
    found: Found, sections: Sequence[Section], records: Sequence[Record], file: Path, beside: Path, *notes: str
) -> str:
    """The whole file. The text above `BEGIN` and below `END` is kept.

    Parameters
    ----------
    found : sequence of (Experiment, figures)
        The experiments and their figures.
    sections : sequence of Section
        The sections. Experiments that are in none get one of their own, at the end.
    records : sequence of Record
        The runs.
    file, beside : Path
        The Markdown file, and where its pictures are.
    notes : str
        Lines that follow the answers.
    """
    old = file.read_text() if file.exists() else "# Benchmarks\n\n"
    head, _, rest = old.partition(BEGIN)
    tail = rest.partition(END)[2] or "\n"
    by_id = {e.id: (e, figures) for e, figures in found}
    there = [s for s in _all(sections, by_id) if any(id in by_id for id in s.experiments)]
    shown = [(s, [by_id[id] for id in s.experiments if id in by_id]) for s in there]
    lines = [BEGIN, "", "## Answers", "", "| question | answer |", "|---|---|"]
    lines += [f"| [{s.title}](#{s.anchor}) | {_short(s, own)} |" for s, own in shown]
    lines += ["", *notes, "", *([METHOD.read_text()] if sections else [])]
    for section, own in shown:
        picture = draw(section.chart, section.title, records, own, beside)
        lines += _section(section, own, picture.relative_to(file.parent) if picture else None)
    return head + "\n".join([*lines, END]) + tail


def _all(
    sections: Sequence[Section], by_id: Mapping[str, tuple[Experiment, Sequence[Figure]]]
) -> list[Section]:
    asked = {id for s in sections for id in s.experiments}
    return [
        *sections,
        *(Section(f"{id}: {e.title}", (id,), chart="") for id, (e, _) in by_id.items() if id not in asked),
    ]


def _short(section: Section, own: Found) -> str:
    """The answer in the overview; the figures themselves if nobody has put it into words."""
    said = answered([section.short], _figures(own)) if section.short else ""
    return said or "; ".join(f"{f.what}: **{f}**" for e, figures in own for f in e.summary(figures))


def _figures(own: Found) -> dict[str, Figure]:
    return {name: f for e, figures in own for f in figures for name in (f.what, f"{e.id}: {f.what}")}


def _section(section: Section, own: Found, picture: Path | None) -> Iterator[str]:
    yield f"## {section.title}"
    yield ""
    if answer := answered(section.answer, _figures(own)):
        yield f"{answer}\n"
    if picture:
        yield f"![{section.title}]({picture})\n"
    for head, *rows in [*claimed(own), *tables(own)]:
        yield from (f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
        yield ""
    yield from (f"- {caveat}" for caveat in section.caveats)
    if section.caveats:
        yield ""
    # Several experiments that answer one question form a group. Some only use the runs of another one.
    first = own[0][0]
    yield f"Run it: `make bench ONLY={first.group if len(own) > 1 else first.runs_of or first.id}`.\n"
