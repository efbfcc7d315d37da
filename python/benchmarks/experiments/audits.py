"""Measures how audits of moved bins affect the epochs in which they are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from experiments.common import AIM, BATCHED, PREPARED, Size, counting, paced
from openloop.experiment import Experiment, Figure, compared
from openloop.results import Record

__all__ = ["audits"]

_SETTING = "spark.sql.streaming.stateStore.binshift.audit"
_DEFAULT = "16"


def audits(size: Size) -> Experiment:
    """A prepared rescale with audits and without, by turns."""
    load = counting(size)
    cases = [
        case
        for audit in ("off", _DEFAULT, "all")
        for case in paced(
            "audits", replace(load, conf={**load.conf, _SETTING: audit}), [PREPARED, BATCHED], audit=audit
        )
    ]

    def figures(records: Sequence[Record]) -> list[Figure]:
        return [
            figure
            for action in (PREPARED, BATCHED)
            for audit in (_DEFAULT, "all")
            for what, value in (("longest epoch", "longest_ms"), ("longest ÷ median epoch", "ratio"))
            for figure in compared(
                f"{what}, audit = {audit} ÷ off: {action.name}",
                records,
                itemgetter(value),
                {"run": action.name, "audit": audit},
                {"run": action.name, "audit": "off"},
            )
        ]

    return Experiment(
        "audits",
        f"audits of moved bins, {size.keys:,} keys, 4 to 8 partitions",
        {AIM: "1.0"},
        cases,
        figures,
        "key-count",
        size.repeats,
        headline="longest epoch",
    )
