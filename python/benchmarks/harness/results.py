"""What runs showed, as files: a run that is there is not run again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Record", "Results"]


@dataclass(frozen=True, slots=True)
class Record:
    """One run, or one measurement without epochs.

    Parameters
    ----------
    experiment : str
        Its id, such as "M1".
    case : mapping
        What distinguishes it from the other runs of the experiment, such as the strategy.
    repeat : int
        0 for the first.
    values : mapping
        What was measured: the fields of a `run.Result`, or others.
    epochs, latencies : list of mapping
        For the pictures; seconds from the action on.
    """

    experiment: str
    case: Mapping[str, Any]
    repeat: int
    values: Mapping[str, Any]
    epochs: list[Mapping[str, Any]] = field(default_factory=list)
    latencies: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Its file's name."""
        return key_of(self.experiment, self.case, self.repeat)


def key_of(experiment: str, case: Mapping[str, Any], repeat: int) -> str:
    """Names a run that was or is to be done."""
    text = "_".join(f"{k}={v}" for k, v in sorted(case.items()))
    return "".join(c if c.isalnum() or c in "-_=." else "-" for c in f"{experiment}_{text}_{repeat}")


class Results:
    """A directory with a JSON file for each run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def has(self, experiment: str, case: Mapping[str, Any], repeat: int) -> bool:
        """Whether this run is there."""
        return self._file(key_of(experiment, case, repeat)).exists()

    def add(self, record: Record) -> None:
        """Keeps a run."""
        self._directory.mkdir(parents=True, exist_ok=True)
        fields = {name: getattr(record, name) for name in Record.__slots__}
        file = self._file(record.key)
        made = file.with_suffix(".making")
        made.write_text(json.dumps(fields))
        made.rename(file)

    def all(self) -> list[Record]:
        """All runs, by experiment, case and repetition."""
        files = sorted(self._directory.glob("*.json")) if self._directory.exists() else []
        return [Record(**json.loads(f.read_text())) for f in files]

    def tables(self) -> dict[str, pa.Table]:
        """Runs, epochs and latencies, a row each, with the experiment, the case as JSON and the repetition."""
        records = self.all()
        return {
            "runs": pa.Table.from_pylist([{**_id(r), **_flat(r.values)} for r in records]),
            "epochs": _rows(records, "epochs"),
            "latencies": _rows(records, "latencies"),
        }

    def save_tables(self, directory: Path) -> None:
        """Writes `tables` as parquet files."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, table in self.tables().items():
            pq.write_table(table, directory / f"{name}.parquet", compression="zstd")

    def _file(self, key: str) -> Path:
        return self._directory / f"{key}.json"


def _id(record: Record) -> dict[str, Any]:
    return {
        "experiment": record.experiment,
        "case": json.dumps(record.case, sort_keys=True),
        "repeat": record.repeat,
    }


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: json.dumps(v) if isinstance(v, (list, dict)) else v for k, v in values.items()}


def _rows(records: Iterable[Record], what: str) -> pa.Table:
    return pa.Table.from_pylist([{**_id(r), **row} for r in records for row in getattr(r, what)])
