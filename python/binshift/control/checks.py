"""The results of the checks of `binshift doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Check", "Verdict"]


class Verdict(StrEnum):
    """The outcome of a check."""

    FINE = "fine"
    ADVICE = "advice"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Parameters
    ----------
    about : str
        What was checked, in a word or two.
    verdict : Verdict
    found : str
        What the check found.
    then : str
        What to do about it; empty if all is well, or if `found` says it.
    """

    about: str
    verdict: Verdict
    found: str
    then: str = ""
