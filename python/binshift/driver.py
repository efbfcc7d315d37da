"""Brings the jar into a driver's JVM that is running already, and activates binshift in an existing session.

Relies on Spark: `spark-submit`, which starts the JVM of each Python driver, gives its threads a class loader to
which jars can be added later, `MutableURLClassLoader`. Threads that start later, such as those of queries, have
the same loader, and Spark looks for providers of state stores and extensions of sessions in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext

from binshift import errors
from binshift._version import version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["activate", "call", "gateway", "is_running", "launch", "load", "require_known_settings", "settings"]

_EXCEPTION = "org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException"
_LOADER = "org.apache.spark.util.MutableURLClassLoader"


def is_running() -> bool:
    """True if a JVM is running, with or without a SparkContext."""
    return SparkContext._jvm is not None


def launch(options: dict[str, Any]) -> None:
    """Starts the JVM as the first session with these options would; does nothing if one is running."""
    conf = SparkConf()
    for key, value in options.items():
        conf.set(key, str(value))
    SparkContext._ensure_initialized(conf=conf)


def settings() -> dict[str, str]:
    """The settings of the SparkContext, or those that the next one would get by itself; empty without a JVM."""
    if not is_running():
        return {}
    context = SparkContext._active_spark_context
    conf = SparkConf(_jvm=SparkContext._jvm) if context is None else context.getConf()
    return dict(conf.getAll())


def load(jar: Path) -> None:
    """Makes the classes of the jar known to the JVM, unless it knows binshift already.

    Raises
    ------
    ConfigurationError
        If no class loader takes the jar, or another version of it is loaded.
    """
    if _gateway() is None:
        loader = _jvm().java.lang.Thread.currentThread().getContextClassLoader()
        while loader is not None and not is_instance_of(SparkContext._gateway, loader, _LOADER):
            loader = loader.getParent()
        if loader is not None:
            loader.addURL(_jvm().java.io.File(str(jar)).toURI().toURL())
    how = how_to_start(jar)
    gateway(
        f"Spark's JVM is running already without {jar.name}, and no class loader of it accepts jars; {how}", jar
    )


def require_known_settings(keys: Iterable[str]) -> None:
    """Refuses settings that look like binshift's but are unknown. Call `load` before."""
    call(_jvm().org.apache.spark.sql.binshift.Gateway.requireKnownSettings, "\n".join(keys))


def activate(session: SparkSession, jar: Path) -> None:
    """Makes binshift active in a session, and gives the jar to the executors, unless that was done already."""
    call(
        gateway(f"the session has no binshift; {how_to_start(jar)}", jar).activate,
        session._jsparkSession,
        str(jar),
    )


def gateway(without: str, jar: Path) -> Any:
    """The JVM's `Gateway`; `without` is what the error says if the jar isn't loaded."""
    found = _gateway()
    if found is None:
        raise errors.ConfigurationError(without, condition="SESSION_WITHOUT_BINSHIFT")
    if (there := call(found.version)) != version:
        raise errors.ConfigurationError(
            f"Spark's JVM has the binshift jar {there} and the Python package is {version}; remove the other "
            f"jar from spark.jars and --jars, and {how_to_start(jar)}",
            condition="JAR_OF_ANOTHER_VERSION",
            installed=there,
        )
    return found


def how_to_start(jar: Path) -> str:
    """The command line to type, for messages."""
    return (
        f"start the application again with 'spark-submit --jars {jar} app.py' (or 'pyspark --jars {jar}'), "
        "and make its session with binshift.configure(builder).getOrCreate()"
    )


def call(method: Any, *args: object) -> Any:
    """Calls the JVM. If binshift fails there, the failure is raised here as the error that it names."""
    try:
        return method(*args)
    except Py4JJavaError as error:
        java = error.java_exception
        if java.getClass().getName() != _EXCEPTION:
            raise
        parameters = json.loads(java.parametersJson())
        raise errors.from_jvm(java.kind(), java.detail(), java.condition(), parameters) from None


def _jvm() -> Any:
    return SparkContext._jvm


def _gateway() -> Any | None:
    found = _jvm().org.apache.spark.sql.binshift.Gateway
    return found if isinstance(found, JavaClass) else None
