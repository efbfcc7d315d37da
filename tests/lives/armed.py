"""The faults that a life has laid in wait, as files (tests/jvm/TestFaults.scala)."""

from __future__ import annotations

import os
from pathlib import Path

from lives.events import Fault


class Armed:
    """At most one fault that lasts for some epochs, and one that doesn't."""

    def __init__(self) -> None:
        self._folder = Path(os.environ["BINSHIFT_TESTS_TMP"]) / "faults"
        self._lasting: tuple[Fault, int] | None = None
        self._other: Fault | None = None
        self.disarm()

    @property
    def is_held(self) -> bool:
        return self._lasting is not None and self._lasting[0].action == "held"

    def arm(self, fault: Fault, epoch: int) -> None:
        if fault.epochs:
            self.end_lasting()
            self._lasting = fault, epoch + fault.epochs
        else:
            self.end_other()
            self._other = fault
        self._file(fault).touch()

    def committed(self, epoch: int) -> None:
        """Ends what has lasted for its epochs."""
        if self._lasting is not None and epoch >= self._lasting[1]:
            self.end_lasting()

    def let_go(self) -> None:
        """Lets pass what is held."""
        if self.is_held:
            self.end_lasting()

    def end_lasting(self) -> None:
        if self._lasting is not None:
            self._file(self._lasting[0]).unlink(missing_ok=True)
        self._lasting = None

    def end_other(self) -> None:
        if self._other is not None:
            self._file(self._other).unlink(missing_ok=True)
        self._other = None

    def disarm(self) -> None:
        """Ends all faults, also those that an earlier life has left."""
        self._lasting = self._other = None
        self._folder.mkdir(exist_ok=True)
        for file in self._folder.iterdir():
            file.unlink(missing_ok=True)

    def _file(self, fault: Fault) -> Path:
        action = {"fails": "throw.always", "held": "block"}.get(fault.action, fault.action)
        return self._folder / f"{fault.point}.{action}"
