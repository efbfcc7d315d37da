"""A server of Spark Connect, as seen by its client: whether it has binshift, and which errors it raises."""

from __future__ import annotations

import json
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from binshift import errors
from binshift._version import version

__all__ = ["awaited", "failure_of", "require_server"]

#: A server that is alive answers sooner.
_PATIENCE_S = 5.0

#: How a failure of binshift begins if only its text is available.
_MARKER = re.compile(r"\[binshift\.(\w+)(?:\.(\w+))?\] ([^\n]*)")

#: Spark's conditions for a catalog or a procedure that it doesn't have, or whose class it can't load.
_NOT_THERE = frozenset(
    {
        "CANNOT_LOAD_CATALOG",
        "CATALOG_NOT_FOUND",
        "FAILED_TO_LOAD_ROUTINE",
        "MISSING_CATALOG_ABILITY",
        "ROUTINE_NOT_FOUND",
        "UNRESOLVED_ROUTINE",
        # Before Spark 4.3: the class of a catalog can't be found.
        "_LEGACY_ERROR_TEMP_2215",
    }
)


@contextmanager
def awaited(remote: str, how_to_start: str) -> Iterator[None]:
    """Warns if a server doesn't answer for some seconds, because Spark's client silently tries for minutes.

    Parameters
    ----------
    remote : str
        The URL of the server. There is no warning for a server that Spark starts itself.
    how_to_start : str
        The command line to type, for the message.
    """
    # The part after the port may contain a token.
    server = remote.partition("/;")[0]
    text = (
        f"{server} has not answered for {_PATIENCE_S:g} s, and Spark's client keeps trying for minutes"
        f"; if no server of Spark Connect runs there, {how_to_start}"
    )
    timer = threading.Timer(_PATIENCE_S, warnings.warn_explicit, [text, RuntimeWarning, "binshift", 0])
    timer.daemon = True
    if remote.startswith("sc://"):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def require_server(session: SparkSession, how_to_start: str) -> None:
    """Refuses a server without binshift, or with another version of it.

    Parameters
    ----------
    session : SparkSession
        The client's session.
    how_to_start : str
        The command line to type, for the message.

    Raises
    ------
    ConfigurationError
        If the server has no binshift, or another version. The message says how to start the server.
    PySparkException
        If the server doesn't answer, or fails for another reason.
    """
    try:
        there = session.sql("CALL binshift.system.version()").collect()[0]
    except PySparkException as error:
        if (failure := failure_of(error)) is not None:
            raise failure from None
        condition = error.getCondition() or ""
        if condition.partition(".")[0] not in _NOT_THERE:
            raise
        reason = str(error).strip().partition("\n")[0]
        raise errors.ConfigurationError(
            f"the server of Spark Connect has no binshift ({reason}); {how_to_start}",
            condition="SERVER_WITHOUT_BINSHIFT",
        ) from None
    if there["binshift"] != version:
        raise errors.ConfigurationError(
            f"the server of Spark Connect has the binshift jar {there['binshift']} and the Python package of "
            f"the client is {version}; install binshift=={there['binshift']}, or {how_to_start}",
            condition="JAR_OF_ANOTHER_VERSION",
            installed=there["binshift"],
        )


def failure_of(error: PySparkException) -> errors.BinshiftError | None:
    """The failure of binshift that the server has raised; None if it is another failure."""
    packed = (error.getMessageParameters() or {}).get("binshift")
    if packed is not None:
        data = json.loads(packed)
        return errors.from_jvm(data["kind"], data["message"], data["condition"], data["parameters"])
    found = _MARKER.search(str(error))
    return None if found is None else errors.from_jvm(found[1], found[3], found[2] or "", {})
