"""Checkpoints that several tests look into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Runs by the name of their case, made when first asked for, and stopped."""
    from local.inspected import CASES, MATRIX, make

    runs: dict[str, Any] = {}

    def run(name: str) -> Any:
        if name not in runs:
            runs[name] = make(spark, tmp_path_factory.mktemp(name), (CASES | MATRIX)[name])
        return runs[name]

    return run
