"""The demo over real flights, small: every part of it runs, and it says what a manager understands."""

import re
import sys

import pytest

import small_demo
from binshift.session import PROVIDER, PROVIDER_KEY

#: Of the session that tests share.
BINS = 64
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
    assert "CORRECT: the live query's state equals that of the same query in batch." in said
    median, longest, gap = (float(re.search(f"^{line}$", said, re.MULTILINE)[1]) for line in LINES)
    assert median > 0
    assert longest > 0
    assert gap > median
    rows = re.findall(r"^ +\d+ +[\d.]+ s +[\d.]+ s +(\d+) +(\d+)(  under way)?$", said, re.MULTILINE)
    assert {partitions for partitions, _, _ in rows} >= {str(demo.FROM), str(demo.TO)}
    # Half of the bins leave, and come back. On a slow machine, the last step may come after the last row.
    assert BINS // 2 < sum(int(bins) for _, bins, _ in rows) <= BINS
    assert any(under_way for _, _, under_way in rows)
    assert picture.read_bytes().startswith(b"\x89PNG")
