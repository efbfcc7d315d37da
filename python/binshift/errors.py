"""The errors of binshift, one class for each kind of problem. All derive from `BinshiftError`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = [
    "BinshiftError",
    "ConfigurationError",
    "MigrationError",
    "MigrationTimeout",
    "PlanError",
    "StateFormatError",
    "StorageError",
    "UnsupportedOperatorError",
    "UnsupportedVersionError",
]

#: The address of the documentation's site; the same as in the JVM's `BinshiftException`.
SITE = "https://binshift.github.io/binshift"


class BinshiftError(Exception):
    """Base of all errors of binshift; its message names the value, the reason and the next step.

    Parameters
    ----------
    message : str
        For people. The next version may word it differently.
    condition : str, optional
        For programs: a stable id of what is wrong, like the conditions of Spark's errors. By default that of
        the class.
    parameters
        The values that the message names. They are also attributes with the same names.

    Attributes
    ----------
    condition : str
    parameters : dict
    url : str
        Of the row of this condition in the documentation. A traceback ends with it.
    """

    condition: str = "FAILURE"

    def __init__(self, message: str = "", *, condition: str | None = None, **parameters: Any) -> None:
        super().__init__(message)
        if condition is not None:
            self.condition = condition
        self.parameters = parameters
        # A traceback ends with it, and `str` is the message alone.
        self.add_note(f"See {self.url}")
        for name, value in parameters.items():
            setattr(self, name, value)

    @property
    def url(self) -> str:
        """The place in the documentation that says what is wrong, and what to do."""
        return f"{SITE}/errors.html#{type(self).__name__}.{self.condition}"


def from_jvm(kind: str, message: str, condition: str, parameters: Mapping[str, Any]) -> BinshiftError:
    """The error for a failure in the JVM. `kind` is the name of its class, and `condition` may be empty."""
    made = globals().get(kind)
    error = made if isinstance(made, type) and issubclass(made, BinshiftError) else BinshiftError
    return error(message, condition=condition or None, **parameters)


#: How many characters of a value a message shows.
_MOST_SHOWN = 120

_E = TypeVar("_E", bound=BinshiftError)


def impossible(kind: type[_E], name: str, value: object, wanted: str, *, what: str = "") -> _E:
    """The error for an argument that has an impossible value.

    Parameters
    ----------
    kind : type
        Class of the error.
    name : str
        Name of the argument. The message has it in words, because its name on the command line is different.
    value : object
    wanted : str
        What to give instead.
    what : str, optional
        What is impossible, if the name and the value don't say it.
    """
    words = re.sub(r"(?<!per)_s$", "", name).replace("_", " ")
    shown = repr(value)
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
    message = f"{what or f'{words} {shown}'} is impossible; give {wanted}"
    return kind(message, condition="INVALID_VALUE", name=name, value=value)


class ConfigurationError(BinshiftError):
    """The session, the query or the checkpoint is not set up for binshift. Correct it and start again."""

    condition = "CONFIGURATION"
    #: The checkpoint that the error is about, as it was given; None if there is none.
    checkpoint: str | None = None
    #: Class name of the provider that the query or the checkpoint has instead.
    provider: str | None = None


class PlanError(BinshiftError):
    """A plan is refused, and nothing has changed. Make another plan."""

    condition = "PLAN_REFUSED"
    #: The executor that the error is about, if there is one.
    executor: str | None = None


class MigrationError(BinshiftError):
    """A migration can't start or continue; the query keeps its last consistent routing table."""

    condition = "MIGRATION_REFUSED"
    #: The migration that the error is about, if it is known.
    migration_id: str | None = None


class MigrationTimeout(MigrationError, TimeoutError):  # noqa: N818 - reads better, like TimeoutError
    """A migration did not finish in the time given. It continues; wait again or cancel it."""

    condition = "TIMEOUT"
    #: How many seconds the caller waited.
    timeout: float | None = None


class StateFormatError(BinshiftError):
    """State in a checkpoint is damaged, incomplete or of an unknown form, so no values are returned for it."""

    condition = "STATE_DAMAGED"


class StorageError(BinshiftError, OSError):
    """The operating system or a store refused a request, or failed. Correct the cause and try again."""

    condition = "STORAGE_FAILED"
    #: The path or URI that could not be read or written, without credentials; None if it is not known.
    path: str | None = None


class UnsupportedOperatorError(BinshiftError):
    """The query has an operator or a setting with which state can't move. The query itself runs."""

    condition = "UNSUPPORTED_OPERATOR"


class UnsupportedVersionError(BinshiftError):
    """The installed version of Spark is not supported. Install the one that the message names."""

    condition = "UNSUPPORTED_VERSION"
    #: The version of pyspark that is installed, if it is known.
    installed: str | None = None
