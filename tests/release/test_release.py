"""The files of `scripts/release` work for users: in empty environments, and from a Maven repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pyspark
import pytest

from binshift.session import CHANGELOG_KEY, PROVIDER_KEY, SUPPORTED_SPARK

pytestmark = [pytest.mark.field, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
VERSION = re.search(r"^version=(.+)$", (ROOT / "gradle.properties").read_text(), re.M)[1]
WHEEL = DIST / f"binshift-{VERSION}-py3-none-any.whl"
SDIST = DIST / f"binshift-{VERSION}.tar.gz"
REPOSITORY = DIST / "repository"
SUBMITTED = ROOT / "tests/cluster/submitted.py"
#: The environment without the tests' own variables, which might help.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK", "JDK_JAVA"))}


def run(*command, cwd, code=0, **environment):
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**CLEAN, **environment}, capture_output=True, text=True,
        timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == code, f"{command}: {done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done


def installed(folder, requirement):
    """Installs one package in an empty environment; returns the interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    run(
        python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement, cwd=folder.parent
    )
    return python


def names_of(python):
    listed = run(python, "-m", "pip", "list", "--format=json", cwd=python.parent).stdout
    return {found["name"].lower() for found in json.loads(listed)} - {"pip", "setuptools"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return installed(tmp_path_factory.mktemp("bare") / "venv", WHEEL)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return installed(tmp_path_factory.mktemp("full") / "venv", f"{WHEEL}[all]")


@pytest.fixture
def program(tmp_path):
    """The README's program."""
    (text,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    file = tmp_path / "readme.py"
    file.write_text(text)
    return file


def test_the_wheel_and_the_sdist_have_all_that_they_should_have_and_nothing_else():
    wheel = set(zipfile.ZipFile(WHEEL).namelist())
    jars = {f"binshift/jars/binshift-spark{spark}_2.13-{VERSION}.jar" for spark in SUPPORTED_SPARK}
    assert {n for n in wheel if n.endswith(".jar")} == jars
    assert "binshift/py.typed" in wheel
    package = {
        f"binshift/{f.relative_to(ROOT / 'python/binshift')}" for f in (ROOT / "python/binshift").rglob("*.py")
    }
    assert {n for n in wheel if n.startswith("binshift/") and n.endswith(".py")} == package
    with tarfile.open(SDIST) as tar:
        files = {n.partition("/")[2] for n in tar.getnames()}
    assert {f"python/{n}" for n in package | jars} <= files
    assert {
        "build.gradle",
        "settings.gradle",
        "gradle.properties",
        "hatch_build.py",
        "LICENSE",
        "README.md",
    } <= files
    assert [f for f in files if f.startswith(("tests", "docs", "build/", ".venv"))] == []


def test_the_sdist_makes_the_same_wheel(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, SDIST, cwd=tmp_path)
    (made,) = tmp_path.glob("*.whl")
    assert set(zipfile.ZipFile(made).namelist()) == set(zipfile.ZipFile(WHEEL).namelist())


def test_the_wheel_alone_pulls_no_spark_and_runs_with_the_one_that_is_there(bare, program, tmp_path):
    assert names_of(bare) == {"binshift", "numpy", "pyarrow", "tqdm"}
    without = "import binshift; binshift.RoutingTable(1, (0,)); binshift.configure(None)"
    assert "binshift[spark]" in run(bare, "-c", without, cwd=tmp_path, code=1).stderr
    assert "binshift[cli]" in run(bare.parent / "binshift", "--help", cwd=tmp_path, code=3).stderr
    # A vendor's runtime has Spark on the path, unknown to pip.
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    site = Path(pyspark.__file__).parents[1]
    for name in ("pyspark", "py4j"):
        (vendor / name).symlink_to(site / name)
    done = run(bare, program, cwd=tmp_path, PYTHONPATH=str(vendor))
    assert "finished: " in done.stdout


def test_the_wheel_with_all_runs_the_program_of_the_readme_and_the_command_line(full, program, tmp_path):
    assert {"pyspark", "click", "rocksdict", "matplotlib"} <= names_of(full)
    assert "finished: " in run(full, program, cwd=tmp_path).stdout
    assert f"version {VERSION}" in run(full.parent / "binshift", "--version", cwd=tmp_path).stdout
    assert Path(run(full.parent / "binshift", "jar", cwd=tmp_path).stdout.strip()).is_file()


@pytest.mark.parametrize("spark", SUPPORTED_SPARK)
def test_the_repository_has_the_jar_of_the_wheel_with_its_sources_and_its_scaladoc(spark):
    name = f"binshift-spark{spark}_2.13"
    stem = REPOSITORY / "io/github/binshift" / name / VERSION / f"{name}-{VERSION}"
    wheel = zipfile.ZipFile(WHEEL)
    assert Path(f"{stem}.jar").read_bytes() == wheel.read(f"binshift/jars/{name}-{VERSION}.jar")
    sources = zipfile.ZipFile(f"{stem}-sources.jar").namelist()
    assert "binshift/StateStoreProvider.scala" in sources
    classes = {n.rpartition("/")[2] for n in zipfile.ZipFile(f"{stem}-javadoc.jar").namelist()}
    assert {"index.html", "StateStoreProvider.html"} <= classes
    assert "<dependenc" not in Path(f"{stem}.pom").read_text()


def test_a_driver_gets_the_jar_by_packages_from_the_repository(full, tmp_path):
    ivy = tmp_path / "ivy.xml"
    # Only this repository, so that the test uses no other.
    ivy.write_text(
        f"""<ivysettings><settings defaultResolver="here"/><caches defaultCacheDir="{tmp_path}/ivy"/>
        <resolvers><ibiblio name="here" m2compatible="true" root="{REPOSITORY.as_uri()}"/></resolvers>
        </ivysettings>"""
    )
    home = run(full, "-c", "import pyspark; print(pyspark.__path__[0])", cwd=tmp_path).stdout.strip()
    minor = ".".join(Path(home).parent.glob("pyspark-*.dist-info").__next__().name.split("-")[1].split(".")[:2])
    settings = {
        "spark.jars.ivySettings": str(ivy),
        PROVIDER_KEY: "binshift.StateStoreProvider",
        CHANGELOG_KEY: "true",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    done = run(
        f"{home}/bin/spark-submit", "--packages", f"io.github.binshift:binshift-spark{minor}_2.13:{VERSION}",
        *options, SUBMITTED, "by_settings", cwd=tmp_path, SPARK_HOME=home, PYSPARK_PYTHON=str(full),
        SUBMITTED_ROOT=str(tmp_path), SUBMITTED_SETTINGS="{}",
    )  # fmt: skip
    assert "done: settings" in done.stdout
