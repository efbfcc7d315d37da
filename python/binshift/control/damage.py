"""The error for damaged files and state, with the same wording everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from binshift.errors import StateFormatError

__all__ = ["NOT_UNDERSTOOD", "damaged", "plain_name", "reason_of", "understood"]

#: The exceptions that Python raises if data are not of the kind or size that the code expects.
NOT_UNDERSTOOD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
_NAME = re.compile(r"(?!\.+\Z)[^/\x00]{1,255}")


def damaged(what: object, reason: object) -> StateFormatError:
    """The error for damage of `what`, a file or a part of the state."""
    return StateFormatError(
        f"{what} is damaged: {reason}; check the checkpoint with `binshift fsck`, and restore the damaged file "
        "from a copy"
    )


@contextmanager
def understood(what: object) -> Iterator[None]:
    """Makes a body that decodes data raise `damaged` if the data don't have the expected form."""
    try:
        yield
    except NOT_UNDERSTOOD as error:
        raise damaged(what, reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """Describes one of the exceptions in NOT_UNDERSTOOD in words."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)[:200]


def plain_name(name: object) -> str:
    """Checks the name of a file or a directory that comes from a file, so that it can't lead elsewhere.

    Raises
    ------
    ValueError
        If it is no name, or has a slash, or is `..`.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r:.100} is not the name of a file")
    return name
