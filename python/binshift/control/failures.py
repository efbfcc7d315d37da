"""Turns failures of the operating system or a store into an error with place, reason and next step."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from binshift.control.uris import shown, without_secrets
from binshift.errors import BinshiftError, StorageError

__all__ = ["Reading", "is_of_system", "reaching", "storage_error"]

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BUSY = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENXIO, errno.ENODEV}
#: Error numbers by their text, because RocksDB only passes the text on.
_SAID = {os.strerror(number): number for number in _DENIED | _FULL | _BUSY}
_MOST_CHARACTERS = 300
_PASSED_ON: tuple[type[Exception], ...] = (
    BinshiftError,
    TypeError,
    AttributeError,
    NameError,
    AssertionError,
    LookupError,
    ArithmeticError,
)


def storage_error(doing: str, place: str, error: BaseException) -> StorageError:
    """The error for `error`, which the operating system or a store raised.

    Parameters
    ----------
    doing : str
        What the caller tried to do, such as "read".
    place : str
        The path or URI, which may have credentials in it.
    error : BaseException
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        number = _number_in(str(error))
    where = shown(place)
    if number is not None:
        reason = os.strerror(number)
    else:
        # The store's own words, without the stack traces of its libraries.
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        reason = re.sub(r"\s+", " ", without_secrets(line, place))[:_MOST_CHARACTERS].rstrip(".")
    return StorageError(f"cannot {doing} {where}: {reason}; {_advice(number)}", path=where)


@contextmanager
def reaching(doing: str, place: str, absent: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Makes a body that uses a file system at `place` raise `storage_error` if it fails.

    The file system may be one of Python's libraries, each of which has exceptions of its own. Exceptions in
    `absent`, which tell the caller that nothing is there, are passed on. So are those of mistakes in the
    program.
    """
    try:
        yield
    except (*_PASSED_ON, *absent):
        raise
    except Exception as error:
        # Not `from error`, because its text may contain the credentials.
        raise storage_error(doing, place, error) from None


def is_of_system(error: BaseException) -> bool:
    """True if the system failed, for example because a disk is full. If not, the data are wrong."""
    number = error.errno if isinstance(error, OSError) else None
    return number in _SAID.values() or _number_in(str(error)) is not None


class Reading:
    """A stream of a file's bytes that fails with `storage_error`."""

    def __init__(self, stream: IO[bytes], place: str) -> None:
        self._stream, self._place = stream, place

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, size: int = -1) -> bytes:
        """The next bytes; fewer than `size` only at the end of the file."""
        # A context manager would cost more than a small read.
        try:
            return self._stream.read(size) if size >= 0 else self._stream.read()
        except Exception as error:
            raise storage_error("read", self._place, error) from None

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()


def _number_in(said: str) -> int | None:
    """The number of the system's error, whose text is in the message of another library."""
    return next((number for words, number in _SAID.items() if words in said), None)


def _advice(number: int | None) -> str:
    if number in _DENIED:
        return "give this user the right to do so, or name another place"
    if number in _FULL:
        return "make room there, or name another place"
    return "correct that, and try again"
