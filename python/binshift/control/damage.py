"""The error for what is damaged, worded alike everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from binshift.errors import StateFormatError

__all__ = ["NOT_UNDERSTOOD", "damaged", "plain_name", "reason_of", "understood"]

#: What Python raises when what was read is not of the kind, or the size, that code takes for granted.
NOT_UNDERSTOOD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
_NAME = re.compile(r"(?!\.+\Z)[^/\x00]{1,255}")


def damaged(what: object, reason: object) -> StateFormatError:
    """The error that says that `what`, a file or a part of the state, is damaged."""
    return StateFormatError(
        f"{what} is damaged: {reason}; check the checkpoint with `binshift fsck`, and restore the damaged file "
        "from a copy"
    )


@contextmanager
def understood(what: object) -> Iterator[None]:
    """Has a body that takes apart what was read raise `damaged`, if that is not of the form that it expects."""
    try:
        yield
    except NOT_UNDERSTOOD as error:
        raise damaged(what, reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """One of NOT_UNDERSTOOD in words."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)[:200]


def plain_name(name: object) -> str:
    """A name of a file or a directory that was read, which must not lead elsewhere.

    Raises
    ------
    ValueError
        If it is no name, or has a slash, or is `..`.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r:.100} is no name of a file")
    return name
