"""The program `binshift`: argument parsing, output, and exit codes."""

from __future__ import annotations

import sys

from binshift.cli.exits import exit_code_of
from binshift.errors import ConfigurationError
from binshift.libraries import needed_for

__all__ = ["start"]


def start() -> None:
    """The entry point of the program `binshift`; says which extra is missing, if one is."""
    try:
        with needed_for("the command line", extra="cli"):
            from binshift.cli.main import main  # noqa: PLC0415
    except ConfigurationError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(exit_code_of(error))
    main()
