"""A small version of the demo over real flights: every part of it runs, and its output is right."""

import re
import sys

import pytest

import small_demo
from binshift.session import PROVIDER, PROVIDER_KEY

LINES = [
    r"median epoch +([\d.]+) s",
    r"longest epoch while bins moved +([\d.]+) s",
    r"Spark's own way on the same state +([\d.]+) s without a result \(stop, repartition, start\)",
]


@pytest.fixture
def demo(monkeypatch):
    yield small_demo.load(monkeypatch)
    for name in ("data", "files", "picture", "stream"):
        del sys.modules[name]


@pytest.mark.matrix
def test_the_demo_rescales_both_ways_and_its_result_is_that_of_the_batch(demo, spark, tmp_path, capsys):
    session = spark.newSession()
    session.conf.set(PROVIDER_KEY, PROVIDER)
    session.conf.set("spark.sql.shuffle.partitions", str(demo.FROM))
    picture = tmp_path / "demo.png"
    try:
        flights = demo.Flights()
        code = demo.run(session, demo.Files(flights, tmp_path), len(flights), tmp_path, picture)
    finally:
        for query in session.streams.active:
            query.stop()
    said = capsys.readouterr().out
    assert code == 0, said
    small_demo.assert_right(said, demo.FROM, demo.TO)
    median, longest, gap = (float(re.search(f"^{line}$", said, re.MULTILINE)[1]) for line in LINES)
    assert median > 0
    assert longest > 0
    assert gap > median
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.matrix
def test_the_demo_rescales_as_a_client_of_spark_connect(tmp_path, jvm_jar):
    said = small_demo.run("--remote", folder=tmp_path)
    small_demo.assert_right(said)
    # A client of Spark Connect has no call for that part.
    assert "Spark's own way on the same state" not in said
