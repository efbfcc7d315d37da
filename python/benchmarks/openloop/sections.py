"""A section of the published report: a question, and the answer by the figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openloop.experiment import Experiment, Figure

__all__ = ["MAX_CAVEATS", "Section", "answered", "claimed", "tables"]

MAX_CAVEATS = 3
_PLACE = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Section:
    """One or more experiments that answer the same question.

    Parameters
    ----------
    title : str
        The question.
    experiments : tuple of str
        Ids of the experiments. With more than one, the table has a row for each.
    answer : tuple of str
        Sentences. `{name}` is the median of the figure with that name, `{nexmark-q3: name}` that of one
        experiment. A sentence with a figure that no run has is left out.
    short : str
        The answer in the overview, in the same form.
    chart : {"timeline", "bars", "bins"}
        The kind of chart.
    caveats : tuple of str
        At most three.
    """

    title: str
    experiments: tuple[str, ...]
    answer: tuple[str, ...] = ()
    short: str = ""
    chart: str = "timeline"
    caveats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.caveats) > MAX_CAVEATS:
            raise ValueError(f"{self.title}: {len(self.caveats)} caveats; a reader bears {MAX_CAVEATS}")

    @property
    def anchor(self) -> str:
        """The anchor of its heading in Markdown."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


def answered(sentences: Sequence[str], figures: Mapping[str, Figure]) -> str:
    """The sentences for which all figures exist, with the figures filled in."""
    known = [s for s in sentences if all(name in figures for name in _PLACE.findall(s))]
    return " ".join(_PLACE.sub(lambda m: figures[m[1]].median, s) for s in known)


def tables(found: Sequence[tuple[Experiment, Sequence[Figure]]]) -> list[list[Sequence[str]]]:
    """Tables of figures, each with its head first.

    A figure called "measure: subject" is at home in the row of the subject and the column of the measure.
    Several experiments have a row each, with what is claimed of them.
    """
    if len(found) > 1:
        names = list(dict.fromkeys(f.what for _, figures in found for f in figures))
        whose = list(dict.fromkeys(who for e, _ in found for who in e.claims))
        rows = [
            [e.title, *_cells(e.claims, whose), *_cells({f.what: str(f) for f in figures}, names)]
            for e, figures in found
        ]
        return [[["", *whose, *names], *rows]]
    ((_, figures),) = found
    by_measure: dict[str, dict[str, str]] = {}
    for figure in figures:
        measure, _, subject = figure.what.partition(": ")
        key, row = (measure, subject) if subject else ("", measure)
        by_measure.setdefault(key, {})[row] = str(figure)
    # Measures of the same subjects, or of more of the same, share a table.
    groups: list[dict[str, dict[str, str]]] = []
    for measure, cells in by_measure.items():
        fitting = [
            g for g in groups if "" not in {measure, *g} and any(set(cells) & set(c) for c in g.values())
        ]
        if fitting:
            fitting[0][measure] = cells
        else:
            groups.append({measure: cells})
    made: list[list[Sequence[str]]] = []
    for group in groups:
        subjects = list(dict.fromkeys(s for cells in group.values() for s in cells))
        rows = [[s, *(group[m].get(s, "") for m in group)] for s in subjects]
        made.append([["", *(m or "measured" for m in group)], *rows])
    return made


def claimed(found: Sequence[tuple[Experiment, Sequence[Figure]]]) -> list[list[Sequence[str]]]:
    """A table of the claims about one experiment, with its head first; none for several, or without a claim."""
    claims = found[0][0].claims if len(found) == 1 else {}
    return [[list(claims), list(claims.values())]] if claims else []


def _cells(values: Mapping[str, str], names: Sequence[str]) -> list[str]:
    return [values.get(name, "") for name in names]
