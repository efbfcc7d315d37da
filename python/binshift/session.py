"""Setting up a Spark session for binshift."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from binshift._version import version
from binshift.arguments import checked
from binshift.errors import ConfigurationError, UnsupportedVersionError, impossible
from binshift.libraries import needed_for
from binshift.numbers import is_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["configure", "jar_path"]

PROVIDER = "binshift.StateStoreProvider"
#: Spark's own provider, whose checkpoints can be taken over.
STOCK_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
REAL_TIME_KEY = "spark.sql.streaming.stateStore.binshift.realTime"
CHANGELOG_KEY = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
#: The class of the catalog for SQL.
CATALOG = "binshift.Catalog"
CATALOG_KEY = "spark.sql.catalog.binshift"
BINS_KEY = "spark.sql.streaming.stateStore.binshift.bins"
JARS_KEY = "spark.jars"

#: More bins than anybody will want, which still leaves room for rounding up to a multiple of the partitions.
MAX_REQUESTED_BINS = 32768
#: Minor versions of Spark for which there is a jar, newest last.
SUPPORTED_SPARK = ("4.1", "4.2", "4.3")
#: The first version whose real-time mode runs stateful queries.
REAL_TIME_SPARK = "4.3"


@checked(ConfigurationError, but=("builder", "bins"))
def configure(
    builder: SparkSession.Builder, *, bins: int | None = None, real_time: bool = False
) -> SparkSession.Builder:
    """Sets up a session whose streaming queries can be rescaled.

    It adds the jar of this package to `spark.jars`, selects the state-store provider, and turns on changelog
    checkpointing unless that was set already. If Spark's JVM is running already, as under `spark-submit`, in
    the `pyspark` shell and in a notebook, the jar is put onto its class loader. If a session exists already,
    the builder's `getOrCreate` makes binshift active in it.

    A builder of Spark Connect gets the settings that a client's session can have. When it makes a session, it
    checks that the server has binshift. A server that Spark starts itself, as for `local[2]`, gets the jar.

    Parameters
    ----------
    builder : SparkSession.Builder
        Builder of a session, classic or of Spark Connect.
    bins : int, optional
        Number of bins of new checkpoints, 1 to 32768; rounded up to a multiple of the first batch's
        partitions. The default is 1024. An existing checkpoint keeps its own number.
    real_time : bool
        Whether queries in Spark's real-time mode should run on binshift, too. Experimental. Spark refuses to
        start such a query in a session that names another provider than Spark's own. So the session names none,
        and binshift gives each query its provider when it starts.

    Returns
    -------
    SparkSession.Builder
        The same builder.

    Raises
    ------
    ConfigurationError
        If `bins` is out of range, or `builder` is no builder. Also if Spark's JVM is running already and none
        of its class loaders takes the jar. With `real_time`, also if a state-store provider is set, or the
        builder is for Spark Connect. The builder raises this error when it makes a session, if a setting of
        binshift is misspelt, or if a server of Spark Connect has no binshift.
    UnsupportedVersionError
        If pyspark isn't 4.1, 4.2 or 4.3, or the package has no jar for it; with `real_time`, also before 4.3.
    """
    require_spark()
    from binshift import driver  # noqa: PLC0415 - imports pyspark, which the command line can do without

    if isinstance(builder, type) or not callable(getattr(builder, "getOrCreate", None)):
        wanted = (
            "a builder: binshift.configure(SparkSession.builder).getOrCreate(), which also makes binshift "
            "active in a session that is there already"
        )
        raise impossible(ConfigurationError, "builder", builder, wanted)
    options: dict[str, str] = getattr(builder, "_options", {})
    if real_time:
        _require_real_time(remote=_is_remote(builder, options))
    if bins is not None:
        if not is_whole(bins, 1, MAX_REQUESTED_BINS):
            raise ConfigurationError(
                f"bins={bins!r} is impossible; give a whole number from 1 to {MAX_REQUESTED_BINS}",
                condition="INVALID_VALUE",
                name="bins",
                value=bins,
            )
        builder = builder.config(BINS_KEY, str(bins))
    jar = jar_path()
    if _is_remote(builder, options):
        return _configure_remote(builder, options, jar)
    if driver.is_running():
        driver.load(jar)
    present = {**_spark_defaults(), **driver.settings(), **options}
    builder = builder.config(JARS_KEY, with_jars(present.get(JARS_KEY, ""), str(jar)))
    builder = builder.config(CATALOG_KEY, CATALOG)
    builder = _real_time(builder, present) if real_time else builder.config(PROVIDER_KEY, PROVIDER)
    if CHANGELOG_KEY not in present:
        builder = builder.config(CHANGELOG_KEY, "true")
    _make_ready(builder, jar)
    return builder


def _configure_remote(
    builder: SparkSession.Builder, options: dict[str, str], jar: Path
) -> SparkSession.Builder:
    with needed_for("Spark Connect", extra="connect"):
        for library in ("grpc", "grpc_status", "google.rpc", "pandas", "zstandard"):
            importlib.import_module(library)
    builder = builder.config(PROVIDER_KEY, PROVIDER)
    if CHANGELOG_KEY not in options:
        builder = builder.config(CHANGELOG_KEY, "true")
    if not _remote_of(options).startswith("sc://"):
        # In this case, Spark starts a server in this process.
        builder = builder.config(JARS_KEY, with_jars(options.get(JARS_KEY, ""), str(jar)))
    _make_ready(builder, jar)
    return builder


def _require_real_time(*, remote: bool) -> None:
    installed = installed_spark()
    if _minor(installed) != REAL_TIME_SPARK:
        raise UnsupportedVersionError(
            f"pyspark {installed} has no real-time mode for stateful queries; pip install "
            f"'pyspark=={REAL_TIME_SPARK}.*', or leave out real_time",
            installed=installed,
        )
    if remote:
        raise ConfigurationError(
            "real_time=True does not work with Spark Connect; leave it out, or use a session without a server",
            condition="INVALID_VALUE",
            name="real_time",
            value=True,
        )


def _real_time(builder: SparkSession.Builder, present: dict[str, str]) -> SparkSession.Builder:
    if PROVIDER_KEY in present:
        raise ConfigurationError(
            f"{PROVIDER_KEY} is {present[PROVIDER_KEY]}, and Spark starts no query in real-time mode in a "
            "session that names a provider; remove that setting: real_time=True gives each query binshift's",
            condition="REAL_TIME_WITH_PROVIDER",
            provider=present[PROVIDER_KEY],
        )
    return builder.config(REAL_TIME_KEY, "true")


def _make_ready(builder: SparkSession.Builder, jar: Path) -> None:
    """Makes the builder prepare its sessions, when it's known what was submitted and which one exists."""
    if getattr(builder, "_binshift", False):
        return
    builder._binshift = True  # type: ignore[attr-defined]
    for name in ("getOrCreate", "create"):
        setattr(builder, name, _ready(builder, getattr(builder, name), jar))


def _ready(
    builder: SparkSession.Builder, make: Callable[[], SparkSession], jar: Path
) -> Callable[[], SparkSession]:
    @functools.wraps(make)
    def made() -> SparkSession:
        from binshift import driver  # noqa: PLC0415 - imports pyspark

        options: dict[str, str] = getattr(builder, "_options", {})
        if _is_remote(builder, options):
            return _with_server(make, _remote_of(options))
        driver.launch(options)
        driver.load(jar)
        # Checked before any session has them.
        driver.require_known_settings({**driver.settings(), **options})
        # Jars that spark-submit was given or has found (--jars, --packages). A builder's option would replace
        # them.
        submitted = driver.settings().get(JARS_KEY, "")
        builder.config(JARS_KEY, with_jars(submitted, options.get(JARS_KEY, ""), str(jar)))
        session = make()
        driver.activate(session, jar)
        return session

    return made


def _with_server(make: Callable[[], SparkSession], remote: str) -> SparkSession:
    from binshift.server import awaited, require_server  # noqa: PLC0415 - imports pyspark

    with awaited(remote, how_to_start_server()):
        session = make()
        require_server(session, how_to_start_server())
    return session


def any_session() -> SparkSession | None:
    """The active session of this thread, or else the one that all threads share; None if there is none."""
    from pyspark import SparkContext  # noqa: PLC0415 - the command line does without
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    try:
        session = SparkSession.active()
    except PySparkRuntimeError:
        session = None
    if session is not None and is_connect(session):
        return session
    context = SparkContext._active_spark_context
    if context is None:
        return None
    return session if session is not None and session._sc is context else SparkSession(context)


def jar_path() -> Path:
    """The jar that this package carries for the installed pyspark.

    Raises
    ------
    UnsupportedVersionError
        If there is none, because pyspark isn't 4.1, 4.2 or 4.3, or the source tree was not built for it.
    """
    return jar_for(installed_spark())


def jar_for(installed: str) -> Path:
    """The jar for a version of pyspark."""
    require_spark(installed)
    minor = _minor(installed)
    jar = _jar_of(minor)
    if not jar.is_file():
        there = installed_jars()
        other = f", or pip install 'pyspark=={there[-1]}.*'" if there else ""
        raise UnsupportedVersionError(
            f"pyspark {installed} is installed and {jar} is missing; the package has a jar for "
            f"{listed(there) or 'no Spark at all'}; run 'make jar SPARK={minor}' in a source tree, "
            f"install a wheel that carries the jar{other}",
            condition="JAR_MISSING",
            installed=installed,
        )
    return jar


def installed_jars() -> list[str]:
    """The minor versions of Spark that this installation of the package has a jar for."""
    return [spark for spark in SUPPORTED_SPARK if _jar_of(spark).is_file()]


def listed(versions: Sequence[str]) -> str:
    """Versions joined as in a sentence: 4.1, 4.2 and 4.3."""
    return " and ".join([*filter(None, [", ".join(versions[:-1])]), *versions[-1:]])


def _jar_of(minor: str) -> Path:
    return Path(__file__).parent / "jars" / f"binshift-spark{minor}_2.13-{version}.jar"


def _minor(installed: str) -> str:
    return ".".join(installed.split(".")[:2])


def installed_spark() -> str:
    """The version of the installed pyspark.

    Raises
    ------
    ConfigurationError
        If there is none.
    """
    with needed_for("a driver", extra="spark"):
        import pyspark  # noqa: PLC0415 - the command line does without
    return str(pyspark.__version__)


def require_spark(installed: str | None = None) -> None:
    """Refuses versions of pyspark that this package doesn't support; checks the installed one by default."""
    installed = installed_spark() if installed is None else installed
    if _minor(installed) not in SUPPORTED_SPARK:
        raise UnsupportedVersionError(
            f"binshift {version} works with pyspark {listed(SUPPORTED_SPARK)}, not with {installed}; "
            f"pip install 'pyspark=={SUPPORTED_SPARK[-1]}.*'",
            installed=installed,
        )


def require_classic(thing: object) -> None:
    """Refuses a session or query of Spark Connect."""
    if is_connect(thing):
        raise ConfigurationError(
            f"{type(thing).__name__} belongs to Spark Connect, which cannot reach the driver's JVM; use a "
            "classic session on the driver, or the command line",
            condition="SPARK_CONNECT",
        )


def how_to_start_server() -> str:
    """The command line to type, for messages."""
    return (
        f"start the server with --jars {jar_path().name}, --conf {PROVIDER_KEY}={PROVIDER} and --conf "
        f"{CHANGELOG_KEY}=true; binshift.jar_path() has the jar"
    )


def is_connect(thing: object) -> bool:
    """True if a session, a query or a builder is of Spark Connect."""
    return type(thing).__module__.startswith("pyspark.sql.connect")


def _is_remote(builder: object, options: dict[str, str]) -> bool:
    mode = options.get("spark.api.mode") or os.environ.get("SPARK_API_MODE") or ""
    return bool(_remote_of(options)) or mode.lower() == "connect" or is_connect(builder)


def _remote_of(options: dict[str, str]) -> str:
    return options.get("spark.remote") or os.environ.get("SPARK_REMOTE") or ""


def with_jars(*lists: str) -> str:
    """Merges lists of jars. Each jar appears once, however its path is written."""
    found: dict[str, str] = {}
    for jar in (jar.strip() for text in lists for jar in text.split(",")):
        if jar:
            found.setdefault(re.sub("^file:(//)?", "", jar), jar)
    return ",".join(found.values())


def _spark_defaults() -> dict[str, str]:
    """The value in spark-defaults.conf, which an option of the builder would override."""
    import pyspark  # noqa: PLC0415 - the command line does without

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    file = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"
    if not file.is_file():
        return {}
    lines = (line.strip() for line in file.read_text().splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and line[0] != "#")
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
