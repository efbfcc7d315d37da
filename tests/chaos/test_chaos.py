"""A short, seeded run of `make chaos`."""

import os
import sys
from pathlib import Path

import pytest

from chaos.killing import live
from chaos.life import Life


@pytest.mark.matrix
@pytest.mark.timeout(900)
@pytest.mark.parametrize("killed", ["driver", "executors", "frozen"])
def test_kills_at_random_instants_leave_exact_results(tmp_path: Path, jvm_jar: Path, monkeypatch, killed):
    monkeypatch.setenv("CHAOS_JAR", str(jvm_jar))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    life = Life.of(tmp_path / "life", "0", killed, epochs=30, kills=3)
    assert live(life, tmp_path / "oracles")["kills"] > 0
