"""The errors of binshift, by what is wrong. All derive from `BinshiftError`."""

from __future__ import annotations

__all__ = [
    "BinshiftError",
    "ConfigurationError",
    "MigrationError",
    "MigrationTimeout",
    "PlanError",
    "StateFormatError",
    "UnsupportedOperatorError",
    "UnsupportedVersionError",
]


class BinshiftError(Exception):
    """Base of all errors of binshift; its message names the value, the reason and the next step."""


class ConfigurationError(BinshiftError):
    """The session, the query or the checkpoint is not set up for binshift. Correct it and start again."""


class PlanError(BinshiftError):
    """A plan is refused, and nothing has changed. Make another plan."""


class MigrationError(BinshiftError):
    """A migration cannot start or go on; the query keeps its last consistent routing table."""


class MigrationTimeout(MigrationError, TimeoutError):  # noqa: N818 - reads better, like TimeoutError
    """A migration did not finish in the time given. It goes on; wait again or cancel it."""


class StateFormatError(BinshiftError):
    """State in a checkpoint is damaged, incomplete or of an unknown form. Nothing wrong is returned for it."""


class UnsupportedOperatorError(BinshiftError):
    """The query has an operator or a setting with which state cannot move. The query itself runs."""


class UnsupportedVersionError(BinshiftError):
    """The installed version of Spark is not supported. Install the one that the message names."""
