"""Winds a stopped query back, as a person does who takes its newest epochs out of the logs."""

from __future__ import annotations

import json
import random
from pathlib import Path

from chaos.life import Life, committed
from traces.by_hand import wound_back


def wind_back(life: Life, rng: random.Random) -> None:
    """Forgets some of the newest epochs, no more than the query promises to keep.

    The log of files that the source has seen goes back as well, so that each epoch gets the input that it had.
    """
    checkpoint = life.root / "checkpoint"
    last = committed(life.root)
    first_forgotten = last + 1 - rng.randint(0, min(2, life.retained - 1))
    if first_forgotten < 1 or not (checkpoint / "offsets" / str(first_forgotten - 1)).exists():
        return
    _delete_from(checkpoint / "commits", first_forgotten)
    _delete_from(checkpoint / "offsets", first_forgotten)
    logged = (checkpoint / "offsets" / str(first_forgotten - 1)).read_text().splitlines()[2]
    _delete_from(checkpoint / "sources" / "0", json.loads(logged)["logOffset"] + 1)
    wound_back(life.trace, checkpoint)


def _delete_from(log: Path, first: int) -> None:
    for file in list(log.iterdir()):
        number = file.name.removesuffix(".crc").removesuffix(".compact").strip(".")
        if number.isdigit() and int(number) >= first:
            file.unlink()
