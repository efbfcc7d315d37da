"""The generator of the benchmark's stream, and those parts of its queries that need no Spark."""

import ast
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexmark
from nexmark import generator

KINDS = {"person": 0, "auction": 1, "bid": 2}


def of(kind, table):
    """The events of one kind: their times, and the fields of their structs."""
    some = table.filter(pc.field("event_type") == KINDS[kind])
    return some.select(["date_time"]).append_column("n", pa.array(range(len(some)))), some[
        kind
    ].combine_chunks()


def field(struct, name):
    return pc.struct_field(struct, name).to_numpy(zero_copy_only=False)


def milliseconds(times):
    return times.cast(pa.int64()).to_numpy()


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(tmp_path):
    first, again, other = (
        [f.read_bytes() for f in nexmark.write(tmp_path / name, 500, 4, seed)]
        for name, seed in (("first", 7), ("again", 7), ("other", 8))
    )
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


@given(st.integers(0, 10_000), st.lists(st.integers(0, 120), min_size=1, max_size=5), st.integers(0, 2**40))
def test_a_stream_does_not_depend_on_how_it_is_cut(first, counts, seed):
    whole = nexmark.generate(seed, 1000, first, sum(counts))
    cuts = [sum(counts[:i]) for i in range(len(counts))]
    parts = [nexmark.generate(seed, 1000, first + at, count) for at, count in zip(cuts, counts, strict=True)]
    assert pa.concat_tables(parts).combine_chunks().equals(whole.combine_chunks())


def test_of_50_events_in_a_row_one_is_a_person_and_three_are_auctions():
    kinds = nexmark.generate(0, 1000, 50, 50_000)["event_type"].to_numpy().reshape(-1, 50)
    assert (kinds == [0, 1, 1, 1] + [2] * 46).all()


def test_the_struct_of_an_event_is_that_of_its_kind_and_has_no_gaps():
    table = nexmark.generate(0, 1000, 0, 5_000)
    for kind, number in KINDS.items():
        here = table[kind].combine_chunks()
        assert here.is_valid().equals(pc.equal(table["event_type"], number).combine_chunks())
        assert all(column.null_count == 0 for column in here.drop_null().flatten())


@given(st.floats(0.5, 1e6), st.integers(0, 10**9))
def test_events_come_at_the_rate(rate, first):
    times = milliseconds(nexmark.generate(0, rate, first, 100)["date_time"])
    due = generator.BASE_MS + np.arange(first, first + 100) / rate * 1000
    # Times are rounded down to milliseconds; floats of large numbers are not exact.
    assert (np.abs(times - due + 0.5) <= 0.501).all()


def test_ids_count_up_and_name_what_exists_or_is_about_to():
    shape = nexmark.Shape(in_flight_auctions=50, active_people=30)
    table = nexmark.generate(3, 1000, 0, 50_000, shape)
    people, auctions, bids = (table[kind].combine_chunks().drop_null() for kind in KINDS)
    assert (field(people, "id") == np.arange(1000, 2000)).all()
    assert (field(auctions, "id") == np.arange(1000, 4000)).all()
    # The number of events of each kind before each event.
    n = np.arange(50_000)
    newest_person, newest_auction = 999 + n // 50 + 1, 999 + n // 50 * 3 + np.clip(n % 50, 0, 3)
    of_auctions, of_bids = (n % 50 > 0) & (n % 50 < 4), n % 50 >= 4
    for named, newest, back in (
        (field(auctions, "seller"), newest_person[of_auctions], 100),
        (field(bids, "bidder"), newest_person[of_bids], 100),
        (field(bids, "auction"), newest_auction[of_bids], 100),
    ):
        assert (named >= np.maximum(newest - back, 1000)).all()
        assert (named <= newest + generator.ID_LEAD).all()
        assert (named > newest).any()


def test_of_each_hundred_one_seller_auction_and_bidder_are_hot():
    table = nexmark.generate(3, 1000, 50_000, 100_000)
    auctions, bids = (table[kind].combine_chunks().drop_null() for kind in ("auction", "bid"))
    for named, place, share in (
        (field(auctions, "seller"), 0, 3 / 4),
        (field(bids, "auction"), 0, 1 / 2),
        (field(bids, "bidder"), 1, 3 / 4),
    ):
        assert np.mean(named % 100 == place) == pytest.approx(share, abs=0.03)


def test_auctions_last_as_long_as_it_takes_for_the_open_ones_to_come():
    shape = nexmark.Shape(in_flight_auctions=300)
    table = nexmark.generate(3, 1000, 0, 100_000, shape)
    some = table.filter(pc.field("event_type") == 1)
    lengths = milliseconds(pc.struct_field(some["auction"], "expires")) - milliseconds(some["date_time"])
    # 5000 events contain 300 auctions.
    assert shape.longest_auction_ms(1000) == 10_000
    assert lengths.min() >= 1
    assert 9_900 < lengths.max() <= 10_000
    assert lengths.mean() == pytest.approx(5_000, rel=0.03)


def test_prices_texts_and_categories_are_those_of_nexmark():
    table = nexmark.generate(3, 1000, 0, 100_000)
    people, auctions, bids = (table[kind].combine_chunks().drop_null() for kind in KINDS)
    logs = np.log10(field(bids, "price") / 100)
    assert logs.min() >= 0
    assert logs.max() <= 6
    assert np.histogram(logs, 6, (0, 6))[0] == pytest.approx(len(logs) / 6, rel=0.03)
    assert (field(auctions, "reserve") >= field(auctions, "initial_bid") + 100).all()
    assert set(field(auctions, "category")) == {10, 11, 12, 13, 14}
    assert set(field(people, "state")) == set(generator.STATES)
    assert set(field(people, "city")) == set(generator.CITIES)
    cards = pc.match_substring_regex(pc.struct_field(people, "credit_card"), r"^\d{4} \d{4} \d{4} \d{4}$")
    assert pc.all(cards).as_py()
    sizes = {
        kind: len(b"".join(t.encode() for c in rows.flatten() if c.type == pa.string() for t in c.to_pylist()))
        / len(rows)
        + 8 * (1 + sum(c.type != pa.string() for c in rows.flatten()))  # one for date_time
        for kind, rows in (("person", people), ("auction", auctions), ("bid", bids))
    }
    assert sizes == pytest.approx({"person": 200, "auction": 500, "bid": 100}, rel=0.05)


def test_files_have_an_epoch_each_and_are_as_old_as_their_events(tmp_path):
    files = nexmark.write(tmp_path, 300, 5, epoch_seconds=0.5)
    assert [f.name for f in files] == [f"{epoch:06}.parquet" for epoch in range(10)]
    assert sorted(tmp_path.iterdir()) == files
    begins = [nexmark.BASE.timestamp() + epoch / 2 for epoch in range(10)]
    assert [f.stat().st_mtime for f in files] == begins
    for file, begin in zip(files, begins, strict=True):
        times = milliseconds(pq.read_table(file)["date_time"])
        assert len(times) == 150
        assert begin * 1000 <= times.min()
        assert times.max() < begin * 1000 + 500
    assert pq.read_schema(files[0]).equals(nexmark.SCHEMA)


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"first": -1}, {"count": -1}])
def test_a_stream_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        nexmark.generate(**{"seed": 0, "rate": 1, "first": 0, "count": 1} | wrong)


def test_lengths_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="hot_ms is 0"):
        nexmark.Windows(hot_ms=0)
    with pytest.raises(ValueError, match="a window of 5000 ms cannot slide by 2000 ms"):
        nexmark.Windows(highest_ms=5_000, highest_slide_ms=2_000)
    with pytest.raises(ValueError, match="hot_sellers is 0"):
        nexmark.Shape(hot_sellers=0)


def test_queries_do_not_know_the_provider():
    """Queries run on any provider: nothing that they consist of imports or names binshift."""
    for file in Path(nexmark.__file__).parent.glob("*.py"):
        text = file.read_text()
        imports = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
        modules = {a.name for n in imports if isinstance(n, ast.Import) for a in n.names}
        modules |= {n.module for n in imports if isinstance(n, ast.ImportFrom)}
        assert not any("binshift" in m for m in modules)
        assert "binshift" not in text
        assert "stateStore" not in text
