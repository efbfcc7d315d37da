"""The statistics of bins, compared with counts in Python and with the `statestore` source."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as F

from binshift import AllAtOnce, Batched, ConfigurationError, MigrationError
from harness import rows, until
from local.queries import QUERIES, bins_of, count_by_key, deduplicate


def by_bin(stats, column):
    return Counter({r["bin"]: r[column] for r in stats.to_pylist() if r[column]})


def test_statistics_count_what_each_bin_holds_and_did_across_a_migration_and_a_restart(stream):
    run = stream(count_by_key).start()
    with pytest.raises(MigrationError, match="no statistics; feed it data"):
        run.attach().stats()
    controller = run.attach()
    seen: set[str] = set()

    def check(controller, epoch, n=40):
        run.run(epoch, n=n)
        keys = Counter(r["k"] for r in rows(epoch, n=n))
        seen.update(keys)
        bin_of = bins_of(run.batch())
        stats = controller.stats()
        assert stats.schema.metadata[b"epoch"] == str(epoch).encode()
        assert stats.num_rows == 64
        assert by_bin(stats, "keys") == Counter(bin_of[k] for k in seen)
        # Partial counts are merged before the state is touched: one lookup and one put for each key.
        assert by_bin(stats, "reads") == by_bin(stats, "writes") == Counter(bin_of[k] for k in keys)
        owners = dict(zip(stats["bin"].to_pylist(), stats["partition"].to_pylist(), strict=True))
        assert tuple(owners[b] for b in range(64)) == controller.routing().assignment
        sizes = by_bin(stats, "bytes")
        assert sizes.keys() == by_bin(stats, "keys").keys()
        # In Spark's encoding, a key takes 25 bytes, and so do a count and a sum together.
        assert all(sizes[b] == 50 * n for b, n in by_bin(stats, "keys").items())
        return stats

    first = check(controller, 0)
    assert set(first["executor"].to_pylist()) == {"driver"}
    assert set(first["name"].to_pylist()) == {"stateStoreSave"}
    check(controller, 1, n=7)
    migration = controller.rescale(4, strategy=Batched(24), prepare=False)
    for epoch in range(2, 5):
        check(controller, epoch)
    assert migration.wait(timeout=60).steps == 2
    run.stop()
    run.start()
    check(run.attach(), 5)


def test_after_a_crash_keys_are_what_each_partition_holds_divided_as_before(stream):
    run = stream(count_by_key).start()
    run.run(0, 1)
    run.stop()
    (run.checkpoint / "binshift" / "statistics.json").unlink(missing_ok=True)
    run.start()
    run.run(2)
    controller = run.attach()
    stats = controller.stats()
    held = Counter(
        dict(
            run.spark.read.format("statestore")
            .load(str(run.checkpoint))
            .groupBy("partition_id")
            .count()
            .collect()
        )
    )
    mine = Counter()
    for r in stats.to_pylist():
        mine[r["partition"]] += r["keys"]
    assert mine == held


def longest(df):
    return df.groupBy("k").agg(F.max(F.repeat(F.lit("x"), F.col("v").cast("int"))).alias("text"))


def test_bytes_follow_rows_that_grow_and_stay_between_the_smallest_and_the_largest(stream):
    run = stream(longest).start()

    def feed(keys, length):
        run.feed([{"k": f"key{i}", "v": length, "t": "2026-01-01 00:00:00"} for i in keys])
        run.query.processAllAvailable()
        return run.attach().stats().to_pylist()

    def encoded(length):
        """Key and value, each with a byte of its own; strings are padded to words of eight bytes."""
        return 25 + 17 + length

    for length in (8, 80, 800):
        rows = feed(range(40), length)
        # Sizes are exact if all rows have the same size, also when that changes.
        assert [r["bytes"] for r in rows] == [r["keys"] * encoded(length) for r in rows]
    for r in feed(range(0, 40, 3), 8000):
        assert r["keys"] * encoded(800) <= r["bytes"] <= r["keys"] * encoded(8000)
    assert sum(r["bytes"] for r in run.attach().stats().to_pylist()) > 40 * encoded(800)


def test_the_hottest_keys_are_named_when_they_are_asked_for(stream):
    run = stream(deduplicate, mode="append").start()
    run.run(0)
    controller = run.attach()
    with pytest.raises(ConfigurationError, match="n 0 is impossible"):
        controller.hot_keys(0)
    with pytest.raises(MigrationError, match="no epoch in 0"):
        controller.hot_keys(timeout=0)
    keys = ["hot"] * 50 + ["warm"] * 20 + [f"key{i}" for i in range(60)]
    data = [{"k": k, "v": 0, "t": "2026-01-01 00:00:00"} for k in keys]

    def feed():
        run.feed(data)
        run.query.processAllAvailable()

    feed()
    with ThreadPoolExecutor(1) as pool:
        # Deduplication looks each row up, and writes nothing for keys that it knows.
        asked = pool.submit(controller.hot_keys, 2)
        assert until(lambda: feed() or asked.done())
    hot, warm = asked.result().to_pylist()
    bin_of, owners = bins_of(run.batch()), controller.routing().assignment
    assert (hot["key"], hot["operations"], hot["missing"]) == ("hot", 50, 0)
    assert (warm["key"], warm["operations"], warm["missing"]) == ("warm", 20, 0)
    for row in (hot, warm):
        assert (row["bin"], row["partition"]) == (bin_of[row["key"]], owners[bin_of[row["key"]]])
        assert row["share"] == row["operations"] / sum(bin_of[k] == row["bin"] for k in keys)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["session-fixed", "join-left", "tws-rows", "dedup-within-watermark"])
def test_the_keys_of_all_bins_are_the_rows_that_spark_counts(stream, name):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode).start()
    controller = run.attach()
    run.run(*range(6))
    controller.rescale(3, strategy=AllAtOnce(), prepare=False)
    run.run(*range(6, 10))
    stats = controller.stats()
    for i, operator in enumerate(run.query.lastProgress.stateOperators):
        mine = [r for r in stats.to_pylist() if r["operator"] == i]
        rows_of_all_stores = operator.numRowsTotal
        if name == "join-left":
            # Spark only counts values; the number of values of each key is another row.
            rows_of_all_stores += sum(
                len(run.state(storeName=f"{side}-keyToNumValues")) for side in ("left", "right")
            )
        assert sum(r["keys"] for r in mine) == rows_of_all_stores
        assert min(r["keys"] for r in mine) >= 0
        assert sum(r["bytes"] for r in mine) > 0
