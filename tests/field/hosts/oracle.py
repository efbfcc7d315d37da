"""The expected outputs and state of the query, counted in Python."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cluster.conftest import count, inputs_of, outputs_of

__all__ = ["assert_outputs", "assert_state"]


def assert_outputs(root: Path, mode: str) -> None:
    """Compares the output of each epoch, in update or complete mode."""
    given = outputs_of(root / "outputs")
    counts: dict[str, tuple[int, int]] = {}
    batches = inputs_of(root / "input")
    assert sorted(given) == list(range(len(batches)))
    for epoch, batch in enumerate(batches):
        count(batch, counts)
        keys = counts if mode == "complete" else {row["k"] for row in batch}
        assert given[epoch] == sorted([k, *counts[k], len(_pad(k))] for k in keys), f"epoch {epoch}"


def assert_state(root: Path, state: list[list[Any]]) -> int:
    """Compares all of the state; returns the number of keys."""
    counts: dict[str, tuple[int, int]] = {}
    for batch in inputs_of(root / "input"):
        count(batch, counts)
    assert sorted(state) == sorted([k, *values, _pad(k)] for k, values in counts.items())
    return len(counts)


def _pad(key: str) -> str:
    return "".join(hashlib.sha512(f"{key}{n}".encode()).hexdigest() for n in range(4))
