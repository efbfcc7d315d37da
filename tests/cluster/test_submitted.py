"""The JVM is there before Python: `spark-submit`, the `pyspark` shell, and a second session in one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import binshift
from binshift.session import CHANGELOG_KEY, PROVIDER_KEY
from jvms import SPARK_HOME, TESTS_JAR, quick

HERE = Path(__file__).parent
APP = HERE / "submitted.py"
SHELL = "import submitted; submitted.shell(spark)"


@pytest.fixture
def run(tmp_path, jvm_jar):
    """Runs one of Spark's programs, and returns the parts that were done."""

    def call(program, *arguments, stdin="", **environment):
        own = quick()
        options = ["--driver-class-path", own.pop("spark.driver.extraClassPath")]
        options += ["--driver-java-options", own.pop("spark.driver.extraJavaOptions")]
        settings = {**own, "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
        for key, value in {"spark.ui.enabled": "false", **settings}.items():
            options += ["--conf", f"{key}={value}"]
        paths = [str(Path(binshift.__file__).parents[1]), str(HERE)]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # As at a terminal: without it, Python does not run what makes the shell's session.
            **({"PYSPARK_DRIVER_PYTHON_OPTS": "-i"} if program == "pyspark" else {}),
            "SUBMITTED_ROOT": str(tmp_path),
            "SUBMITTED_SETTINGS": json.dumps(settings),
            **environment,
        }
        command = [str(SPARK_HOME / "bin" / program), *options, *arguments]
        done = subprocess.run(
            command, env=env, input=stdin, capture_output=True, text=True, timeout=240, check=False
        )
        # The shell goes on after an error.
        failed = done.returncode != 0 or "Traceback" in done.stderr
        assert not failed, f"{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
        return [line.split(": ")[1] for line in done.stdout.splitlines() if line.startswith("done: ")]

    return call


@pytest.mark.long
def test_spark_submit_needs_nothing_but_configure_and_so_does_a_second_session(run):
    assert run("spark-submit", "--jars", str(TESTS_JAR), str(APP), "submitted") == [
        "refused",
        "submitted",
        "again",
    ]


@pytest.mark.long
def test_the_session_of_the_shell_is_made_ready_while_it_lives(run):
    cluster = ("--master", "local-cluster[2,1,1024]", "--conf", "spark.sql.shuffle.partitions=2")
    assert run("pyspark", *cluster, stdin=SHELL) == ["shell", "new", "older"]


@pytest.mark.matrix
def test_the_jar_and_two_settings_are_as_good_as_configure(run):
    settings = ["--conf", f"{PROVIDER_KEY}=binshift.StateStoreProvider", "--conf", f"{CHANGELOG_KEY}=true"]
    jar = ["--jars", str(binshift.jar_path())]
    assert run("spark-submit", *jar, *settings, str(APP), "by_settings") == ["settings"]


@pytest.mark.matrix
def test_a_query_of_a_session_without_the_jar_is_refused_with_the_command_line(run):
    assert run("spark-submit", str(APP), "without_jar") == ["without"]
