"""The jars that binshift is compiled against come from the right place."""

import importlib.util
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("spark_jars", ROOT / "scripts/spark_jars.py")
spark_jars = importlib.util.module_from_spec(spec)
spec.loader.exec_module(spark_jars)

CORE = "spark-core_2.13-4.2.9.jar"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(spark_jars, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index for pip that only has a pyspark 4.2."""
    folder = tmp_path / "index"
    folder.mkdir()
    info = "pyspark-4.2.9.dist-info"
    with zipfile.ZipFile(folder / "pyspark-4.2.9-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"pyspark/jars/{CORE}", b"core")
        wheel.writestr("pyspark/jars/scala-library.jar", b"scala")
        wheel.writestr("pyspark/examples/jars/spark-examples.jar", b"")
        wheel.writestr("pyspark/jars/notes.txt", b"")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pyspark\nVersion: 4.2.9\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_the_jars_are_downloaded_once_and_nothing_else_stays(root, index, capsys, monkeypatch):
    spark_jars.main("4.2")
    told = capsys.readouterr()
    jars = root / "build/spark-4.2"
    assert told.out == f"{jars}\n"
    assert [line.split(":")[0] for line in told.err.splitlines()] == ["Spark 4.2"] * 2
    assert {f.name: f.read_bytes() for f in jars.iterdir()} == {CORE: b"core", "scala-library.jar": b"scala"}
    assert [f.name for f in (root / "build").iterdir()] == ["spark-4.2"]
    monkeypatch.delenv("PIP_FIND_LINKS")
    spark_jars.main("4.2")
    assert capsys.readouterr() == (f"{jars}\n", "")


@pytest.mark.parametrize(("minor", "environment"), [("4.2", ".venv-4.2"), ("4.3", ".venv")])
def test_an_environment_with_that_spark_spares_the_download(root, capsys, minor, environment):
    jars = root / environment / "lib/python3.11/site-packages/pyspark/jars"
    jars.mkdir(parents=True)
    (jars / f"spark-core_2.13-{minor}.1.jar").touch()
    spark_jars.main(minor)
    assert capsys.readouterr().out == f"{jars}\n"
