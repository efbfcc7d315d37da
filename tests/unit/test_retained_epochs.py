"""Which epochs of a checkpoint can be kept, although others may be about to delete what they chose before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from binshift import ConfigurationError
from binshift.cli.savepoint import _place
from binshift.control.files import Files
from binshift.savepoints.retained import chosen_epoch, retained_epochs


def checkpoint(
    root: Path,
    committed: range,
    logged: range | None = None,
    runs: tuple[Any, ...] = (),
    taken_over_at: int = 0,
) -> Path:
    for folder, epochs in (("commits", committed), ("offsets", logged or committed)):
        (root / folder).mkdir(parents=True)
        for epoch in epochs:
            (root / folder / str(epoch)).write_text("v1\n{}\n")
    (root / "binshift/runs").mkdir(parents=True)
    for n, run in enumerate(runs, start=1):
        (root / f"binshift/runs/{n}").write_text(run if isinstance(run, str) else json.dumps(run))
    layout = {"format": 1, "bins": 8, "spark_version": "4.3.0", "operators": [], "taken_over_at": taken_over_at}
    (root / "binshift/layout.json").write_text(json.dumps(layout))
    return root


@pytest.mark.parametrize(
    ("runs", "epochs"),
    [
        ((), [19]),
        (({"began": 0},), [19]),
        (({"began": 0, "retained": 1},), [19]),
        (({"began": 0, "retained": 2},), [19]),
        (({"began": 0, "retained": 5},), [16, 17, 18, 19]),
        # The driver of the first run may still be alive.
        (({"began": 0, "retained": 3}, {"began": 3, "retained": 90}), [18, 19]),
        ((r"\damaged", {"began": 3, "retained": 90}), [19]),
        (({"began": 0, "retained": 90},), list(range(11, 20))),
    ],
)
def test_an_epoch_is_retained_if_each_run_retains_it_and_the_logs_have_it(tmp_path, runs, epochs):
    assert retained_epochs(Files(checkpoint(tmp_path, range(10, 20), runs=runs))) == epochs


def test_offsets_of_the_epoch_before_are_needed_unless_there_is_none(tmp_path):
    runs = ({"began": 0, "retained": 90},)
    there = checkpoint(tmp_path / "new", range(3), range(4), runs)
    assert retained_epochs(Files(there)) == [0, 1, 2]
    there = checkpoint(tmp_path / "old", range(3, 9), range(5, 10), runs)
    assert retained_epochs(Files(there)) == [6, 7, 8]


def test_epochs_before_a_takeover_do_not_count(tmp_path):
    there = checkpoint(tmp_path, range(9), runs=({"began": 5, "retained": 90},), taken_over_at=5)
    assert retained_epochs(Files(there)) == [5, 6, 7, 8]


def test_an_epoch_that_cannot_be_kept_is_refused_with_those_that_can(tmp_path):
    files = Files(checkpoint(tmp_path, range(10, 20), runs=({"began": 0, "retained": 5},)))
    assert (chosen_epoch(files, None), chosen_epoch(files, 17)) == (19, 17)
    with pytest.raises(ConfigurationError, match=r"epoch 15 .* is not retained; choose one of 16 to 19"):
        chosen_epoch(files, 15)


def test_a_checkpoint_is_followed_by_a_savepoint_or_an_epoch(tmp_path):
    there = checkpoint(tmp_path / "with@1", range(3))
    assert _place(str(there)) == (str(there), None, None)
    assert _place(f"{there}@before") == (str(there), "before", None)
    assert _place(f"{there}@17") == (str(there), None, 17)
    (there / "binshift/savepoints").mkdir()
    (there / "binshift/savepoints/a.json").write_text(
        json.dumps({"format": 1, "name": "17", "epoch": 1, "made_at": "2026-01-01T00:00:00+00:00", "files": []})
    )
    assert _place(f"{there}@17") == (str(there), "17", None)
