"""The exit codes of the commands, and the errors they stand for."""

from __future__ import annotations

from binshift import errors

__all__ = ["EXIT_CODES", "described", "exit_code_of"]

#: The most specific class decides. 1 is any other failure, 2 a wrong argument.
EXIT_CODES: dict[type[errors.BinshiftError], int] = {
    errors.ConfigurationError: 3,
    errors.PlanError: 4,
    errors.MigrationTimeout: 6,
    errors.MigrationError: 5,
    errors.UnsupportedOperatorError: 7,
    errors.UnsupportedVersionError: 8,
    errors.StateFormatError: 9,
    errors.StorageError: 10,
}


def exit_code_of(error: errors.BinshiftError) -> int:
    """The exit code for an error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


def described(*kinds: type[errors.BinshiftError]) -> str:
    """Describes the exit codes of a command for its help, given the errors with which it may fail.

    Always includes failures of storage, because each command reads or writes something.
    """
    codes = sorted((EXIT_CODES[kind], kind.__name__) for kind in {*kinds, errors.StorageError})
    named = ", ".join(f"{code} {name}" for code, name in codes)
    return f"Exit codes: 0 done, 1 failure, 2 wrong argument, {named}."
