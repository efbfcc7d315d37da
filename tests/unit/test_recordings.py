"""Recordings and pictures in the documentation are not older than the code that they show."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("recordings", ROOT / "scripts/recordings.py")
recordings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recordings)


@pytest.mark.parametrize("recording", recordings.SHOWN)
def test_a_recording_is_as_new_as_what_it_shows(recording):
    assert recordings.stale(recording) == []


def test_a_change_of_what_is_shown_makes_a_recording_old(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    picture, source = tmp_path / "docs/a.png", tmp_path / "a.py"
    picture.write_bytes(b"1")
    source.write_text('"""Draws."""\nimport os\nprint(1)\n')
    monkeypatch.setattr(recordings, "ROOT", tmp_path)
    monkeypatch.setattr(recordings, "SIGNED", tmp_path / "docs/recordings.json")
    monkeypatch.setattr(recordings, "SHOWN", {"docs/a.png": ["a.py"]})
    assert recordings.stale("docs/a.png") == ["docs/a.png"]
    recordings.sign("docs/a.png")
    assert recordings.stale("docs/a.png") == []
    source.write_text('"""Draws a one."""\nprint( 1 )  # so\n')
    assert recordings.stale("docs/a.png") == []
    for text in (
        "def f(a):\n    b = a\n    return b\n",
        "def f(a: int) -> int:\n    b: int = a\n    return b\n",
    ):
        source.write_text(text)
        if "int" not in text:
            recordings.sign("docs/a.png")
        assert recordings.stale("docs/a.png") == []
    source.write_text("print(2)\n")
    assert recordings.stale("docs/a.png") == ["a.py"]
    recordings.sign("docs/a.png")
    picture.write_bytes(b"2")
    assert recordings.stale("docs/a.png") == ["recording"]


def test_outputs_of_the_notebook_do_not_change_what_it_is_made_with(tmp_path):
    notebook = json.loads((ROOT / recordings.NOTEBOOK).read_text())
    for cell in notebook["cells"]:
        cell["outputs"] = []
    other = tmp_path / "other.ipynb"
    other.write_text(json.dumps(notebook))
    assert recordings.said(other) == recordings.said(ROOT / recordings.NOTEBOOK)
