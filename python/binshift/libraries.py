"""Libraries that not every user needs: the package's extras, and the error if one isn't installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from binshift.errors import ConfigurationError

__all__ = ["needed_for"]

_INSTALL = {
    "spark": "run it with the Python of your Spark, or pip install 'binshift[spark]'",
    "cli": "pip install 'binshift[cli]'",
    "inspect": "pip install 'binshift[inspect]'",
    "connect": "pip install 'binshift[connect]'",
    "plot": "pip install 'binshift[plot]'",
}


@contextmanager
def needed_for(purpose: str, *, extra: str) -> Iterator[None]:
    """Makes a failing import in its body raise an error that names the extra.

    Parameters
    ----------
    purpose : str
        What can't be done without the libraries, as the subject of a sentence.
    extra : str
        The extra that installs them.

    Raises
    ------
    ConfigurationError
        If a library is not installed.
    """
    try:
        yield
    except ImportError as error:
        library = (error.name or str(error)).partition(".")[0]
        if library == "binshift":
            raise
        raise ConfigurationError(
            f"{purpose} needs {library}, which is not installed ({error}); {_INSTALL[extra]}",
            condition="LIBRARY_MISSING",
            library=library,
            extra=extra,
        ) from error
