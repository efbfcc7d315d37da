"""What `binshift doctor` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Check", "Verdict"]


class Verdict(StrEnum):
    """How a check came out."""

    FINE = "fine"
    ADVICE = "advice"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Parameters
    ----------
    about : str
        What was looked at, in a word or two.
    verdict : Verdict
    found : str
        What is so.
    then : str
        What to do about it; empty if all is well, or if `found` says it.
    """

    about: str
    verdict: Verdict
    found: str
    then: str = ""
