"""The findings of a check of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Severity"]


class Severity(Enum):
    """How serious a finding is."""

    DAMAGE = "damage"  # state is lost or wrong, at least at some version
    ORPHAN = "orphan"  # a file that nothing refers to; harmless


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that isn't as it should be.

    Parameters
    ----------
    severity : Severity
    where : str
        A file of the checkpoint, or an operator's store and partition.
    what : str
    """

    severity: Severity
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.where}: {self.what}"
