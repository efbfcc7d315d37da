"""An open-loop source: files appear at set times, whether the query keeps up or not."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Feed", "Input"]

#: How many seconds before a trigger with the same interval fires a file appears.
AHEAD = 0.1


@dataclass(frozen=True, slots=True)
class Input:
    """A stream as files, and when they appear.

    Parameters
    ----------
    directory : Path
        Has one directory per interval, in the order of their names. Each has parquet files.
    rows : int
        Rows of each interval.
    interval : float
        Seconds from one to the next.
    """

    directory: Path
    rows: int
    interval: float

    @property
    def parts(self) -> list[Path]:
        """The directories, in order."""
        return sorted(p for p in self.directory.iterdir() if p.is_dir())


class Feed(threading.Thread):
    """Links the files of an input into the directory that a query reads.

    Interval i appears `AHEAD` seconds before `start + i * interval`, where `start` is a multiple of the
    interval on the wall clock: Spark's trigger with this interval fires at these multiples.
    """

    def __init__(self, source: Input, watched: Path) -> None:
        super().__init__(daemon=True, name="feed")
        self._source = source
        self._parts = source.parts
        self._watched = watched
        self._ended = threading.Event()
        self._fed = 0
        self.scheduled: dict[str, float] = {}

    def run(self) -> None:
        """Feeds until the input or the run is over."""
        interval = self._source.interval
        start = (time.time() // interval + 2) * interval
        for i, part in enumerate(self._parts):
            at = start + i * interval - AHEAD
            if self._ended.wait(max(0.0, at - time.time())):
                return
            for file in sorted(part.glob("*.parquet")):
                name = f"{part.name}-{file.name}"
                self.scheduled[name] = at
                os.link(file, self._watched / name)
            self._fed = i + 1

    @property
    def fed(self) -> int:
        """Intervals that have appeared."""
        return self._fed

    @property
    def is_exhausted(self) -> bool:
        """True if all of the input has appeared."""
        return self._fed == len(self._parts)

    def stop(self) -> None:
        """Stops feeding: no more files appear after this."""
        self._ended.set()
        self.join()
