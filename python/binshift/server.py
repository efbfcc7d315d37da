"""A server of Spark Connect as its client sees it: whether it has binshift, and what it raises."""

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

#: A server that lives answers sooner.
_PATIENCE_S = 5.0

#: How a failure of binshift begins where nothing but its text is there.
_MARKER = re.compile(r"\[binshift\.(\w+)(?:\.(\w+))?\] ([^\n]*)")

#: What Spark says of a catalog or a procedure that it does not have, or whose class it cannot load.
_NOT_THERE = frozenset(
    {
        "CANNOT_LOAD_CATALOG",
        "CATALOG_NOT_FOUND",
        "FAILED_TO_LOAD_ROUTINE",
        "MISSING_CATALOG_ABILITY",
        "ROUTINE_NOT_FOUND",
        "UNRESOLVED_ROUTINE",
        # That the class of a catalog cannot be found, before Spark 4.3.
        "_LEGACY_ERROR_TEMP_2215",
    }
)


@contextmanager
def awaited(remote: str, how_to_start: str) -> Iterator[None]:
    """Warns if a server does not answer for some seconds, since Spark's client silently tries for minutes.

    Parameters
    ----------
    remote : str
        The URL of the server. One that Spark starts itself is not warned of.
    how_to_start : str
        What to type, for the message.
    """
    # What stands behind the port may be a token.
    server = remote.partition("/;")[0]
    text = (
        f"{server} has not answered for {_PATIENCE_S:g} s, and Spark's client goes on trying for minutes"
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
        Of the client.
    how_to_start : str
        What to type, for the message.

    Raises
    ------
    ConfigurationError
        It says how to start the server.
    PySparkException
        If the server did not answer, or for another reason.
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
    """The failure of binshift that the server has raised, if it is one."""
    packed = (error.getMessageParameters() or {}).get("binshift")
    if packed is not None:
        data = json.loads(packed)
        return errors.from_jvm(data["kind"], data["message"], data["condition"], data["parameters"])
    found = _MARKER.search(str(error))
    return None if found is None else errors.from_jvm(found[1], found[3], found[2] or "", {})
