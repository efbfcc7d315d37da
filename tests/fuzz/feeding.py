"""Feeds a target with inputs of its mutator, and keeps those that it fails at."""

from __future__ import annotations

import hashlib
import signal
import time
import traceback
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from binshift.errors import BinshiftError
from fuzz.mutating import Mutator
from fuzz.targets import Target

#: No input of some kilobytes may take longer, on however busy a machine.
HANG_SECONDS = 60


class HangError(BaseException):
    """Raised in the middle of an input that takes too long; no decoder catches it by mistake."""


@dataclass
class Outcome:
    """The results of the inputs."""

    decoded: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[bytes, str]] = field(default_factory=list)
    slowest_s: float = 0.0

    @property
    def inputs(self) -> int:
        return self.decoded + sum(self.refused.values()) + len(self.failures)


def feed(name: str, target: Target, inputs: int, *, seed: int = 1, most_failures: int = 20) -> Outcome:
    """Feeds a number of inputs; stops early after some failures."""
    outcome = Outcome()
    for example in target.examples:
        target.feed(example)
    mutator = Mutator(target.examples, zlib.crc32(name.encode()) ^ seed)
    before = signal.signal(signal.SIGALRM, _hangs)
    try:
        for _ in range(inputs):
            data = mutator.input()
            began = time.perf_counter()
            signal.alarm(HANG_SECONDS)
            try:
                target.feed(data)
                outcome.decoded += 1
            except BinshiftError as error:
                outcome.refused[type(error).__name__] += 1
            except (Exception, HangError):
                outcome.failures.append((data, traceback.format_exc()))
            finally:
                signal.alarm(0)
            outcome.slowest_s = max(outcome.slowest_s, time.perf_counter() - began)
            if len(outcome.failures) >= most_failures:
                break
    finally:
        signal.signal(signal.SIGALRM, before)
    return outcome


def keep(folder: Path, name: str, outcome: Outcome) -> list[Path]:
    """Writes the inputs that failed, each with its traceback."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for data, trace in outcome.failures:
        file = folder / f"{name.replace(' ', '-')}-{hashlib.sha256(data).hexdigest()[:12]}"
        file.write_bytes(data)
        file.with_suffix(".txt").write_text(trace)
        files.append(file)
    return files


def _hangs(number: int, frame: FrameType | None) -> None:
    raise HangError(f"an input takes longer than {HANG_SECONDS} s")
