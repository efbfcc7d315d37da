"""Checks the format of the files in `binshift/`. Each file names its format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binshift.errors import ConfigurationError

__all__ = ["require_format"]

_FORMAT = 1


def require_format(data: Mapping[str, Any], name: str, root: str) -> None:
    """Refuses a file of another format than this build reads.

    Parameters
    ----------
    data : mapping
        The JSON of the file.
    name : str
        Its name below the checkpoint.
    root : str
        The checkpoint, for the message.

    Raises
    ------
    ConfigurationError
        If the file has another format.
    KeyError
        If the file names none.
    """
    found = data["format"]
    if found != _FORMAT:
        raise ConfigurationError(
            f"{root}/{name} has format {found}; this binshift reads format {_FORMAT}; use the binshift "
            "version that wrote the checkpoint",
            condition="UNKNOWN_FORMAT",
            file=name,
            format=found,
        )
