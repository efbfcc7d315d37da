"""A driver process of its own that a test commands (see `commanded.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.conftest import HERE, expected_outputs, expected_state, outputs_of


class DriverEndedError(AssertionError):
    """The driver ended while it did a command."""


class Driver:
    """A driver that waits for commands (see `commanded.py`).

    Parameters
    ----------
    root : Path
        Input, outputs, and what the driver says on stderr.
    checkpoint : str
        Where it is; by default below `root`.
    halt, meanwhile : str
        The instant at which the driver dies, or does something else, see `HaltingCheckpointFileManager`.
    name : str
        Of one of several drivers of a query.
    script : Path
        What runs.
    prefix : sequence of str
        What the command begins with, such as one that runs it on another host.
    environment : mapping
        Beside that of this process.
    """

    def __init__(
        self,
        root: Path,
        master: str,
        conf: Mapping[str, str],
        checkpoint: str = "",
        *,
        halt: str = "",
        meanwhile: str = "",
        name: str = "",
        script: Path = HERE / "commanded.py",
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.errors = root / f"stderr{name}"
        root.mkdir(exist_ok=True)
        command = [*prefix, sys.executable, str(script), str(root), master, json.dumps(conf), checkpoint]
        instant = {"BINSHIFT_HALT": halt, "BINSHIFT_MEANWHILE": meanwhile}
        given = {key: value for key, value in instant.items() if value} | dict(environment or {})
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                env=os.environ | given,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def __call__(self, name: str, *arguments: Any) -> Any:
        self.tell(name, *arguments)
        return self.answer(name)

    def answer(self, name: str = "") -> Any:
        """The answer to the oldest command that has none yet."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("answer: "):
                return json.loads(line.removeprefix("answer: "))
        raise DriverEndedError(f"{name}: the driver ended: {self.errors.read_text()[-4000:]}")

    def tell(self, name: str, *arguments: Any) -> None:
        """Gives a command, and waits for nothing."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL to the driver's Python and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end(self) -> None:
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.errors.read_text()[-4000:]

    def assert_exact(self, partitions: int, first: int = 0, outputs: str = "outputs") -> dict[str, Any]:
        """Compares state and every output with counts made in Python; a fork has those from `first` on."""
        report = self("report")
        state = expected_state(self.root / "input")
        assert {tuple(r) for r in report["state"]} == state
        assert report["partitions"] == partitions
        assert report["metadata"] == [partitions]
        assert report["numRowsTotal"] == report["keys"] == len(state)
        self.assert_outputs(first, outputs)
        return report

    def assert_outputs(self, first: int = 0, outputs: str = "outputs") -> None:
        """Compares every output from `first` on with counts made in Python."""
        expected = expected_outputs(self.root / "input")
        assert outputs_of(self.root / outputs) == {e: out for e, out in expected.items() if e >= first}
