"""Keeps the results of runs as files. A run with a result isn't repeated, unless it was disturbed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["MAX_OTHERS", "Record", "Results", "final_states", "read_tables", "write_tables"]

#: The share of processor time that other processes may take before a run becomes meaningless.
MAX_OTHERS = 0.05
ID = ("experiment", "case", "repeat")
PARTS = ("epochs", "latencies")


@dataclass(frozen=True, slots=True)
class Record:
    """One run, or one measurement without epochs.

    Parameters
    ----------
    experiment : str
        Its id, such as "rescale".
    case : mapping
        Distinguishes it from the other runs of the experiment, for example by the strategy.
    repeat : int
        Number of the repetition, from 0.
    values : mapping
        The measured values: the fields of a `Result`, or others.
    epochs, latencies : sequence of mapping
        For the pictures; seconds from the action on.
    """

    experiment: str
    case: Mapping[str, Any]
    repeat: int
    values: Mapping[str, Any]
    epochs: Sequence[Mapping[str, Any]] = field(default_factory=list)
    latencies: Sequence[Mapping[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The name of its file."""
        return key_of(self.experiment, self.case, self.repeat)

    @property
    def is_disturbed(self) -> bool:
        """True if other processes took so much of the machine that the figures are meaningless."""
        return self.values.get("others", 0) > MAX_OTHERS


def key_of(experiment: str, case: Mapping[str, Any], repeat: int) -> str:
    """Names a run that was done, or will be."""
    text = "_".join(f"{k}={v}" for k, v in sorted(case.items()))
    return "".join(c if c.isalnum() or c in "-_=." else "-" for c in f"{experiment}_{text}_{repeat}")


class Results:
    """A directory with a JSON file for each run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def has(self, experiment: str, case: Mapping[str, Any], repeat: int) -> bool:
        """True if this run exists, and wasn't so disturbed that it has to be repeated."""
        file = self._file(key_of(experiment, case, repeat))
        return file.exists() and not _record(file).is_disturbed

    def add(self, record: Record) -> None:
        """Adds a run."""
        self._directory.mkdir(parents=True, exist_ok=True)
        fields = {name: getattr(record, name) for name in Record.__slots__}
        file = self._file(record.key)
        made = file.with_suffix(".making")
        made.write_text(json.dumps(fields))
        made.rename(file)

    def all(self) -> list[Record]:
        """All runs, by experiment, case and repetition."""
        files = sorted(self._directory.glob("*.json")) if self._directory.exists() else []
        return [_record(f) for f in files]

    def _file(self, key: str) -> Path:
        return self._directory / f"{key}.json"


def _record(file: Path) -> Record:
    return Record(**json.loads(file.read_text()))


def final_states(records: Sequence[Record]) -> dict[str, dict[str, list[str]]]:
    """The final states of runs by workload, with the runs that had each state. Only some runs record it.

    All runs of a workload take the same input, so there should be only one state.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        if digest := record.values.get("digest"):
            found.setdefault(record.values["workload"], {}).setdefault(digest, []).append(record.key)
    return found


def write_tables(records: Sequence[Record], directory: Path) -> None:
    """Keeps runs as parquet: a table of the runs, and one each of their epochs and latencies."""
    directory.mkdir(parents=True, exist_ok=True)
    runs = [{**_id(r), "values": json.dumps(r.values)} for r in records]
    parts = {what: [{**_id(r), **x} for r in records for x in getattr(r, what)] for what in PARTS}
    for name, rows in {"runs": runs, **parts}.items():
        pq.write_table(pa.Table.from_pylist(rows), directory / f"{name}.parquet", compression="zstd")


def read_tables(directory: Path) -> list[Record]:
    """The runs that were kept as tables."""
    runs, parts = pq.read_table(directory / "runs.parquet").to_pylist(), {}
    for what in PARTS:
        for row in pq.read_table(directory / f"{what}.parquet").to_pylist():
            key = tuple(row.pop(name) for name in ID)
            parts.setdefault((what, *key), []).append(row)
    return [
        Record(
            r["experiment"],
            json.loads(r["case"]),
            r["repeat"],
            json.loads(r["values"]),
            *(parts.get((what, *(r[name] for name in ID)), []) for what in PARTS),
        )
        for r in runs
    ]


def _id(record: Record) -> dict[str, Any]:
    case = json.dumps(record.case, sort_keys=True)
    return dict(zip(ID, (record.experiment, case, record.repeat), strict=True))
