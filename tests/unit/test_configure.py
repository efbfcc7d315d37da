"""The settings that `configure` puts on a builder; no JVM is started."""

import re
import subprocess
import sys
import warnings

import pytest
from pyspark.sql import SparkSession

import binshift
from binshift import ConfigurationError, UnsupportedVersionError
from binshift.server import awaited
from binshift.session import (
    BINS_KEY,
    CHANGELOG_KEY,
    JARS_KEY,
    PROVIDER,
    PROVIDER_KEY,
    REAL_TIME_KEY,
    SUPPORTED_SPARK,
    jar_for,
    require_spark,
    with_jars,
)
from harness import until

pytestmark = pytest.mark.few


def builder(**options: str) -> SparkSession.Builder:
    b = SparkSession.Builder()
    b._options = dict(options)
    return b


@pytest.fixture(autouse=True)
def no_running_spark(monkeypatch):
    # The session of other tests may be running in this process; these tests are about the builder.
    monkeypatch.setattr("binshift.driver.is_running", lambda: False)


def test_provider_changelog_and_jar_are_set():
    options = binshift.configure(builder(), bins=64)._options
    assert options[PROVIDER_KEY] == "binshift.StateStoreProvider"
    assert options[CHANGELOG_KEY] == "true"
    assert options[JARS_KEY] == str(binshift.jar_path())
    assert options[BINS_KEY] == "64"


@pytest.mark.needs_spark("4.3", reason="real-time mode runs stateful queries")
def test_for_real_time_mode_the_session_names_no_provider_and_keeps_sparks_checks():
    options = binshift.configure(builder(), real_time=True)._options
    assert PROVIDER_KEY not in options
    assert options[REAL_TIME_KEY] == "true"
    assert not [key for key in options if "realTimeMode" in key]
    assert options[CHANGELOG_KEY] == "true"
    with pytest.raises(ConfigurationError, match="names a provider") as refused:
        binshift.configure(builder(**{PROVIDER_KEY: "mine"}), real_time=True)
    assert (refused.value.condition, refused.value.provider) == ("REAL_TIME_WITH_PROVIDER", "mine")
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        binshift.configure(builder(**{"spark.remote": "sc://localhost"}), real_time=True)


def test_real_time_mode_is_refused_on_a_spark_without_state_in_it(monkeypatch):
    monkeypatch.setattr("pyspark.__version__", "4.2.1")
    with pytest.raises(UnsupportedVersionError, match="no real-time mode for stateful queries"):
        binshift.configure(builder(), real_time=True)


def test_bins_are_left_to_the_checkpoint_unless_given():
    assert BINS_KEY not in binshift.configure(builder())._options


def test_the_jar_is_appended_to_those_of_the_user_once():
    b = binshift.configure(builder(**{JARS_KEY: "/a.jar, /b.jar"}))
    again = binshift.configure(b)._options
    assert again[JARS_KEY] == f"/a.jar,/b.jar,{binshift.jar_path()}"


def test_jars_of_spark_defaults_are_kept(tmp_path, monkeypatch):
    (tmp_path / "spark-defaults.conf").write_text("# mine\nspark.jars   /c.jar,/d.jar\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert binshift.configure(builder())._options[JARS_KEY] == f"/c.jar,/d.jar,{binshift.jar_path()}"


def test_a_jar_is_listed_once_however_its_path_is_written():
    assert with_jars("/a.jar,file:///b.jar", " /b.jar, file:/a.jar ,/c.jar") == "/a.jar,file:///b.jar,/c.jar"


def test_a_user_who_turned_changelog_checkpointing_off_keeps_it_off():
    assert binshift.configure(builder(**{CHANGELOG_KEY: "false"}))._options[CHANGELOG_KEY] == "false"


@pytest.mark.parametrize("bins", [0, -5, 40000, 1.5, "64", True])
def test_an_impossible_number_of_bins_is_refused(bins):
    with pytest.raises(ConfigurationError, match="bins="):
        binshift.configure(builder(), bins=bins)


def test_a_builder_of_spark_connect_gets_what_a_session_of_a_client_can_have(monkeypatch):
    options = binshift.configure(builder(**{"spark.remote": "sc://localhost"}), bins=64)._options
    assert (options[PROVIDER_KEY], options[CHANGELOG_KEY], options[BINS_KEY]) == (PROVIDER, "true", "64")
    assert JARS_KEY not in options
    # Spark starts a Connect server in this process, and that needs the jar.
    local = binshift.configure(builder(**{"spark.remote": "local[2]", JARS_KEY: "/a.jar"}))._options
    assert local[JARS_KEY] == f"/a.jar,{binshift.jar_path()}"
    assert JARS_KEY in binshift.configure(builder(**{"spark.api.mode": "connect"}))._options
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    assert JARS_KEY not in binshift.configure(builder())._options


def test_a_server_that_does_not_answer_is_told_of_after_some_seconds_without_its_token(monkeypatch):
    monkeypatch.setattr("binshift.server._PATIENCE_S", 0.05)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with awaited("sc://nobody:1/;token=secret", "start one"):
            assert until(lambda: bool(told))
        with awaited("local[2]", "start one"), awaited("sc://somebody:1", "start one"):
            pass
    (warning,) = told
    said = (
        r"^sc://nobody:1 has not answered for 0.05 s, .* if no server of Spark Connect runs there, start one$"
    )
    assert re.match(said, str(warning.message))


def test_a_builder_that_waits_for_a_server_says_so():
    program = """
import binshift, binshift.server
from pyspark.sql import SparkSession
binshift.server._PATIENCE_S = 0.5
binshift.configure(SparkSession.builder.remote("sc://localhost:1")).getOrCreate()
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as client:
        try:
            said = next((line for line in client.stderr if "has not answered" in line), "")
        finally:
            client.kill()
    assert said.startswith("binshift:0: RuntimeWarning: sc://localhost:1 has not answered for 0.5 s")
    assert "start the server with --jars binshift-" in said


def test_a_conversion_in_a_session_of_spark_connect_is_refused():
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigurationError, match="classic session") as refused:
        binshift.convert("/checkpoint", output="/output", to="spark", spark=session)
    assert refused.value.condition == "SPARK_CONNECT"


@pytest.mark.parametrize("installed", ["4.0.5", "4.10.0", "4.20.0", "4.4.0", "3.5.0"])
def test_another_pyspark_is_refused_with_the_version_to_install(installed):
    with pytest.raises(
        UnsupportedVersionError, match=rf"pyspark 4\.1, 4\.2 and 4\.3, not with {installed}; .*4\.3\.\*"
    ):
        require_spark(installed)


@pytest.mark.parametrize("installed", ["4.1.1", "4.1.4", "4.2.0", "4.2.1", "4.3.0"])
def test_each_spark_has_a_jar_of_its_own(installed, jars):
    assert jar_for(installed) == jars / f"binshift-spark{installed[:3]}_2.13-1.0.jar"


def test_a_missing_jar_is_named_with_what_is_there_and_what_to_do(jars):
    (jars / "binshift-spark4.2_2.13-1.0.jar").unlink()
    with pytest.raises(UnsupportedVersionError) as caught:
        jar_for("4.2.1")
    message = str(caught.value)
    assert "pyspark 4.2.1 is installed" in message
    assert "binshift-spark4.2_2.13-1.0.jar is missing; the package has a jar for 4.1 and 4.3;" in message
    assert "make jar SPARK=4.2" in message
    assert "pip install 'pyspark==4.3.*'" in message
    assert (caught.value.condition, caught.value.installed) == ("JAR_MISSING", "4.2.1")


def test_a_package_without_jars_says_so(jars):
    for jar in jars.iterdir():
        jar.unlink()
    with pytest.raises(UnsupportedVersionError, match=r"a jar for no Spark at all; run 'make jar SPARK=4\.3'"):
        jar_for("4.3.0")


@pytest.fixture
def jars(tmp_path, monkeypatch):
    """The folder of jars of an installed package, one jar for each version of Spark."""
    monkeypatch.setattr("binshift.session.version", "1.0")
    monkeypatch.setattr("binshift.session.__file__", str(tmp_path / "session.py"))
    folder = tmp_path / "jars"
    folder.mkdir()
    for spark in SUPPORTED_SPARK:
        (folder / f"binshift-spark{spark}_2.13-1.0.jar").touch()
    return folder


def test_the_packages_beside_the_api_are_there_when_they_are_asked_for() -> None:
    assert binshift.inspect.open.__module__ == "binshift.inspect.checkpoint"
    assert binshift.autoscaling.ScalingSettings.__name__ == "ScalingSettings"
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        binshift.absent  # noqa: B018
