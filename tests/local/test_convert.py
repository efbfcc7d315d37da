"""A checkpoint is given back to Spark's own provider, or brought from its HDFS-backed one."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from pyspark.sql import functions as F

import binshift
from binshift import AllAtOnce, Batched, BinshiftError, ConfigurationError, UnsupportedOperatorError
from binshift.jvm import call, gateway_of
from binshift.session import PROVIDER
from harness import STOCK, Fault, assert_same_results, end_maintenance, held_up_at
from local.processors import summing_by_float_in_pandas, summing_in_pandas
from local.queries import QUERIES, in_jvm
from local.settings import HDFS, IDS, MORE_JOINS, OPERATORS, new, start_with

#: Without it, rows may be distributed by some of the columns of a key only.
STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"


def go_on(run, checkpoint, provider):
    """The same query goes on from another checkpoint, in a session that names `provider`."""
    run.stop()
    run.checkpoint = checkpoint
    start_with(run, provider)


def assert_like_stock(run, stream, name, conf, epochs):
    oracle = new(stream, name, STOCK, conf, "oracle").start()
    oracle.run(*range(epochs))
    oracle.stop()
    assert_same_results(run, oracle, QUERIES[name].state)


@pytest.mark.long
@pytest.mark.few
@pytest.mark.parametrize(("name", "conf"), OPERATORS + MORE_JOINS, ids=str)
def test_a_checkpoint_that_was_taken_over_and_rescaled_is_given_back(stream, tmp_path, name, conf):
    run = new(stream, name, STOCK, conf).start()
    run.run(0, 1)
    go_on(run, run.checkpoint, PROVIDER)
    run.run(2)
    run.attach().rescale(5, strategy=AllAtOnce(), prepare=False)
    run.run(3, 4)
    controller = run.attach()
    turned = [(owner + 2) % 5 for owner in controller.routing().assignment]
    controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False)
    run.run(5, 6)
    assert controller.routing().assignment == tuple(turned)
    run.stop()
    state = run.states(QUERIES[name].state)
    report = binshift.convert(
        str(run.checkpoint), to="rocksdb", output=str(tmp_path / "stock"), spark=run.spark
    )
    assert (report.converted, report.epoch, report.partitions) == (True, 6, 5)
    go_on(run, tmp_path / "stock", STOCK)
    assert run.states(QUERIES[name].state) == state
    assert {m.numPartitions for m in run.metadata()} == {5}
    run.run(7)
    # And taken over again, from a checkpoint at another number of partitions.
    go_on(run, run.checkpoint, PROVIDER)
    run.run(8)
    assert run.attach().routing().partitions == 5
    assert not list((tmp_path / "stock").glob("*conversion*"))
    assert_like_stock(run, stream, name, conf, 9)


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("session-fixed", {}),
        *(
            pytest.param(name, {}, marks=pytest.mark.matrix)
            for name in QUERIES
            if not name.startswith(("tws", "session-fixed"))
        ),
    ],
    ids=str,
)
def test_a_checkpoint_of_the_hdfs_backed_provider_goes_on_with_bins(stream, tmp_path, name, conf):
    run = new(stream, name, HDFS, conf).start()
    run.run(0, 1, 2)
    run.stop()
    report = binshift.convert(
        str(run.checkpoint), to="binshift", output=str(tmp_path / "to"), partitions=3, spark=run.spark
    )
    assert (report.provider, report.partitions_before, report.partitions) == (HDFS, 2, 3)
    go_on(run, tmp_path / "to", PROVIDER)
    run.run(3, 4)
    assert run.attach().routing().partitions == 3
    assert_like_stock(run, stream, name, conf, 5)


def count_all(df):
    """Counts without grouping columns, in one partition."""
    return df.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


@pytest.mark.matrix
def test_state_without_grouping_columns_stays_where_it_is(stream, tmp_path):
    def make(provider, name="run"):
        return stream(count_all, name, provider=provider)

    run = make(STOCK).start()
    run.run(0, 1, 2)
    go_on(run, run.checkpoint, PROVIDER)
    run.run(3)
    run.run(4, 5)
    run.stop()
    binshift.convert(
        str(run.checkpoint), to="rocksdb", output=str(tmp_path / "to"), partitions=4, spark=run.spark
    )
    go_on(run, tmp_path / "to", STOCK)
    run.run(6, 7)
    oracle = make(STOCK, "oracle").start()
    oracle.run(*range(8))
    assert_same_results(run, oracle)


def files_of(run):
    return {f: f.stat().st_mtime_ns for f in run.checkpoint.rglob("*") if f.is_file()}


def test_an_epoch_that_was_begun_is_run_again_from_the_copy(stream, tmp_path):
    run = new(stream, "count", PROVIDER, IDS).start()
    run.run(0)
    run.attach().rescale(4, strategy=Batched(16), prepare=False)
    run.run(1, 2)
    run.stop()
    end_maintenance(run.spark)
    before = run.outputs[2]
    run.forget(2)
    files = files_of(run)
    plan = binshift.convert(
        str(run.checkpoint),
        to="rocksdb",
        output=str(tmp_path / "to"),
        partitions=3,
        dry_run=True,
        spark=run.spark,
    )
    assert (plan.converted, plan.epoch, plan.uncommitted_epochs, plan.partitions) == (False, 1, 1, 3)
    assert not (tmp_path / "to").exists()
    for fault in (
        Fault("convert.partition", "throw", always=True),
        Fault("convert.finish", "throw"),
        # While what the others have left is deleted.
        Fault("convert.clean", "throw"),
    ):
        with fault, pytest.raises(BinshiftError, match="it is unchanged"):
            binshift.convert(
                str(run.checkpoint), to="rocksdb", output=str(tmp_path / "to"), partitions=3, spark=run.spark
            )
        assert not (tmp_path / "to/metadata").exists()
        # Without the log of offsets, Spark would begin with no state and read no file a second time.
        half = new(stream, "count", STOCK, IDS, fault.file.name)
        shutil.copytree(tmp_path / "to", half.checkpoint)
        half.input = run.input
        with pytest.raises(Exception, match=r"(?i)metadata|cannot|state"):
            half.start().query.processAllAvailable()
        assert not half.outputs
        half.stop()
    with Fault("convert.partition", "throw") as fault:
        binshift.convert(
            str(run.checkpoint), to="rocksdb", output=str(tmp_path / "to"), partitions=3, spark=run.spark
        )
    assert fault.happened
    assert files_of(run) == files
    go_on(run, tmp_path / "to", STOCK)
    run.run(3)
    assert run.outputs[2] == before
    assert run.progress(2).stateOperators[0].numShufflePartitions == 3
    assert_like_stock(run, stream, "count", IDS, 4)


def test_what_cannot_be_converted_is_refused(stream, tmp_path):
    run = new(stream, "count", PROVIDER, {}).start()
    run.run(0)

    def convert(to="rocksdb", checkpoint=run.checkpoint, output="to", **options):
        return binshift.convert(
            str(checkpoint), to=to, output=str(tmp_path / output), spark=run.spark, **options
        )

    with pytest.raises(ConfigurationError, match="stop it first"):
        convert()
    assert not convert(dry_run=True, force=True).converted
    run.stop()
    with pytest.raises(ConfigurationError, match="already"):
        convert("binshift")
    with pytest.raises(ConfigurationError, match="no form of a checkpoint"):
        convert("parquet")
    with pytest.raises(ConfigurationError, match="impossible"):
        convert(partitions=0)
    with pytest.raises(ConfigurationError, match="no file 'metadata'"):
        convert(checkpoint=tmp_path)
    with pytest.raises(ConfigurationError, match="is not empty"):
        convert(output="run/input")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/metadata").write_text("{")
    with pytest.raises(BinshiftError, match=r"^\S+ or \S+ cannot be read \(.*\); look at .*fsck'\n") as broken:
        convert(checkpoint=tmp_path / "broken")
    assert broken.value.condition == "CONVERSION_FAILED"
    # Neither spelling has its classes here.
    for scheme in ("s3", "s3a"):
        with pytest.raises(ConfigurationError, match=r"no file system for 's3a:'.*--packages"):
            convert(checkpoint=f"{scheme}://bucket/orders", output="s3-to")
    with pytest.raises(ConfigurationError, match="stop it first"):
        convert(conf={"spark.jars": "a.jar"})
    with pytest.raises(ConfigurationError, match="in the checkpoint itself"):
        convert(output="run/checkpoint/to")
    assert not (tmp_path / "to").exists()


def test_of_two_conversions_into_one_output_the_first_fails(stream, tmp_path):
    run = new(stream, "count", STOCK, {}).start()
    run.run(0, 1)
    run.stop()
    running = {}

    def begin(partitions):
        running[partitions] = pool.submit(
            lambda: binshift.convert(
                str(run.checkpoint),
                to="rocksdb",
                output=str(tmp_path / "to"),
                partitions=partitions,
                spark=run.spark,
            )
        )

    with ThreadPoolExecutor(2) as pool:
        with ExitStack() as held:
            with held_up_at("convert.finish.3", lambda: begin(3)):
                held.enter_context(held_up_at("convert.finish.4", lambda: begin(4)))
            with pytest.raises(ConfigurationError, match="another conversion began to write") as error:
                running[3].result()
            assert error.value.condition == "OUTPUT_TAKEN"
            assert not (tmp_path / "to/metadata").exists()
        assert running[4].result().converted
    assert not list((tmp_path / "to").glob("*conversion*"))
    go_on(run, tmp_path / "to", STOCK)
    assert {m.numPartitions for m in run.metadata()} == {4}
    run.run(2)
    assert_like_stock(run, stream, "count", {}, 3)


def test_a_query_that_goes_on_while_it_is_converted_ends_the_conversion_unless_it_is_forced(stream, tmp_path):
    run = new(stream, "count", STOCK, {}).start()
    run.run(0)
    run.stop()
    ends = []

    def convert(**options):
        ends.append(
            pool.submit(
                lambda: binshift.convert(
                    str(run.checkpoint), to="rocksdb", output=str(tmp_path / "to"), spark=run.spark, **options
                )
            )
        )

    def go_on_by(epoch):
        run.start()
        run.run(epoch)
        run.stop()

    with ThreadPoolExecutor(1) as pool:
        with held_up_at("convert.finish", convert):
            go_on_by(1)
        with pytest.raises(ConfigurationError, match="it has gone on to epoch 1 while epoch 0") as error:
            ends[0].result()
        assert error.value.condition == "QUERY_RUNS"
        assert not (tmp_path / "to/metadata").exists()
        with held_up_at("convert.finish", lambda: convert(force=True)):
            go_on_by(2)
        assert ends[1].result().epoch == 1


def test_a_conversion_is_cancelled_while_it_has_no_job(stream, tmp_path):
    run = new(stream, "count", STOCK, {}).start()
    run.run(0)
    run.stop()
    conversion = gateway_of(run.spark).conversion(
        run.spark._jsparkSession, str(run.checkpoint), str(tmp_path / "to"), "rocksdb", 0, False
    )
    running = []
    with ThreadPoolExecutor(1) as pool:
        with held_up_at("convert.store", lambda: running.append(pool.submit(call, conversion.run))):
            conversion.cancel()
        with pytest.raises(BinshiftError, match="it was cancelled"):
            running[0].result()
    assert not (tmp_path / "to/metadata").exists()


@pytest.mark.parametrize(
    ("build", "provider", "strict", "operator"),
    [
        (in_jvm("keyInText"), STOCK, "true", "transformWithStateExec"),
        (QUERIES["count"].build, HDFS, "false", "stateStoreSave"),
    ],
    ids=["typed key", "some of the columns"],
)
def test_one_partition_does_not_tell_how_keys_are_placed(stream, tmp_path, build, provider, strict, operator):
    conf = {"spark.sql.shuffle.partitions": "1", STRICT: strict}
    run = stream(build, provider=provider, conf=conf).start()
    run.run(0)
    run.stop()

    def convert(**options):
        return binshift.convert(
            str(run.checkpoint), to="rocksdb", output=str(tmp_path / "to"), spark=run.spark, **options
        )

    with pytest.raises(UnsupportedOperatorError, match=rf"{operator} has all .* in 1 partition.* leave out"):
        convert(partitions=4)
    assert convert(dry_run=True).partitions == 1


@pytest.mark.long
def test_a_few_keys_do_not_tell_how_they_are_placed(stream, tmp_path):
    run = stream(QUERIES["tws-jvm"].build, provider=STOCK, conf={"spark.sql.shuffle.partitions": "2"})

    def convert_after(*epochs, **options):
        run.start()
        run.run(*epochs, **options)
        run.stop()
        return binshift.convert(
            str(run.checkpoint), to="rocksdb", output=str(tmp_path / "to"), partitions=4, spark=run.spark
        )

    with pytest.raises(
        UnsupportedOperatorError, match=r"has \d keys in 2 partitions, and it takes 30 .* leave"
    ):
        convert_after(0, keys=5)
    assert not (tmp_path / "to/metadata").exists()
    assert convert_after(1, 2, 3).converted


@pytest.mark.long
def test_floats_tell_nothing_if_rows_are_distributed_by_them_in_pandas(stream, tmp_path):
    conf = {"spark.sql.shuffle.partitions": "2"}

    def convert(name, build):
        run = stream(build, name, provider=STOCK, conf=conf).start()
        run.run(0, 1)
        run.stop()
        return binshift.convert(
            str(run.checkpoint),
            to="rocksdb",
            output=str(tmp_path / f"{name}-to"),
            partitions=4,
            spark=run.spark,
        )

    with pytest.raises(UnsupportedOperatorError, match=r"transformWithStateInPandasExec has keys of .* floats"):
        convert("by-float", summing_by_float_in_pandas)
    # A map has its own keys, which move no row.
    assert convert("with-floats", summing_in_pandas).converted


@pytest.mark.parametrize("provider", [STOCK, HDFS])
def test_what_binshift_would_not_take_over_is_not_converted_to_it(stream, tmp_path, provider):
    run = new(stream, "count", provider, {STRICT: "false"}).start()
    run.run(0)
    run.stop()
    with pytest.raises(ConfigurationError, match="some of their columns only") as error:
        binshift.convert(str(run.checkpoint), to="binshift", output=str(tmp_path / "to"), spark=run.spark)
    assert error.value.condition == "CHECKPOINT_TOO_OLD"
    assert not (tmp_path / "to").exists()


def test_a_session_of_another_thread_is_used_and_left_alone(spark, tmp_path):
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    with ThreadPoolExecutor(1) as pool:
        looked = pool.submit(binshift.convert, str(tmp_path), to="rocksdb", dry_run=True)
        with pytest.raises(ConfigurationError, match="no file 'metadata'"):
            looked.result()
    assert spark.range(3).count() == 3
    assert spark.conf.get("spark.sql.shuffle.partitions") == partitions
