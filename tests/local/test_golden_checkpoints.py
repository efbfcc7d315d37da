"""Checkpoints that an earlier build wrote on Spark 4.1 are read, continued and rescaled.

The oracle is the same query over the same input on Spark's own RocksDB provider, in this Spark throughout.
"""

import json

import pytest
from pyspark.errors import StreamingQueryException

import binshift.inspect
from binshift import AllAtOnce, ConfigurationError
from golden_checkpoints import EPOCHS, FOLDER, FORMAT, cases
from harness import STOCK, assert_same_results, rows
from local.inspected import comparable, expected, read
from local.queries import QUERIES
from local.settings import IDS

CASES = {case.id: case for case in cases()}
#: This checkpoint is in the middle of a migration of four steps.
UNDER_WAY = CASES["count-under-way"]
#: The cases of the ordinary run; all others belong to the matrix.
USUAL = {"join-full", "tws-jvm-ids"}
FORMATS = range(1, FORMAT + 1)
AFTER = range(len(EPOCHS), len(EPOCHS) + 4)


def unpacked(stream, case, format):
    """The run of a golden checkpoint, not yet started."""
    query = QUERIES[case.name]
    run = stream(query.build, mode=query.mode, conf=case.conf)
    for epoch in EPOCHS:
        run.feed(rows(epoch))
    case.unpack(run.root, format)
    layout = json.loads((run.checkpoint / "binshift/layout.json").read_text())
    assert (layout["format"], layout["spark_version"][:4]) == (format, "4.1.")
    return run


def assert_inspected(run, case, version):
    """Checks that state read without a JVM equals what Spark reads."""
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        for option in QUERIES[case.name].state:
            found = comparable(read(checkpoint, version, option))
            assert found
            assert found == comparable(expected(run, version, option))


def assert_exact(stream, run, case, after=AFTER):
    query = QUERIES[case.name]
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK, conf=case.conf).start()
    oracle.run(*EPOCHS, *after)
    for epoch in EPOCHS:
        # The build that wrote the checkpoint had these outputs.
        del oracle.outputs[epoch]
    assert_same_results(run, oracle, query.state)


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=id, marks=[pytest.mark.matrix] * (id not in USUAL))
        for id, case in CASES.items()
        if case != UNDER_WAY
    ],
)
def test_a_checkpoint_of_an_earlier_build_is_read_rescaled_and_gone_on_with(stream, case, format):
    run = unpacked(stream, case, format)
    assert_inspected(run, case, len(EPOCHS))
    run.start()
    run.query.processAllAvailable()
    assert run.outputs == {}
    assert run.attach().routing().partitions == 4
    assert [r["bins_moved"] > 0 for r in run.attach().history().to_pylist()] == [True] * 2
    # Spark 4.1 can't read state of checkpoint format 2 if there are retired partitions, too.
    target = 5 if case.conf.items() >= IDS.items() else 3
    for epoch in AFTER:
        run.run(epoch)
        if epoch == AFTER[0]:
            run.attach().rescale(target, strategy=AllAtOnce(), prepare=False)
    assert run.attach().routing().partitions == target
    assert_exact(stream, run, case)
    run.stop()
    assert_inspected(run, case, AFTER[-1] + 1)


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
def test_a_migration_of_an_earlier_build_is_carried_on(stream, format):
    run = unpacked(stream, UNDER_WAY, format).start()
    # The steps of the earlier build.
    assert run.attach().history().num_rows == 2
    run.run(*AFTER)
    assert run.attach().history().num_rows == 4
    assert run.attach().routing().partitions == 4
    assert_exact(stream, run, UNDER_WAY)


def files_of_binshift(run):
    """Binshift's files and those of the state; Spark's log also has the epoch that is refused."""
    folders = [run.checkpoint / "binshift", run.checkpoint / "state"]
    return {f: f.read_bytes() for folder in folders for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize("name", ["layout.json", "routing"])
def test_a_checkpoint_of_a_later_format_is_refused_by_name_and_left_as_it_is(stream, name):
    case = CASES["count-ids"]
    run = unpacked(stream, case, FORMAT)
    file = run.checkpoint / "binshift" / name
    if file.is_dir():
        file = max(file.iterdir(), key=lambda f: int(f.name))
    known = file.read_text()
    file.write_text(json.dumps(json.loads(known) | {"format": FORMAT + 1}))
    before = files_of_binshift(run)
    told = rf"{file.name} has format {FORMAT + 1}\b.*use the binshift"
    with (
        pytest.raises(ConfigurationError, match=told) as refused,
        binshift.inspect.open(run.checkpoint) as checkpoint,
    ):
        checkpoint.routing()
    assert (refused.value.condition, refused.value.parameters["format"]) == ("UNKNOWN_FORMAT", FORMAT + 1)
    # The files are only read for an epoch with input.
    run.feed(rows(AFTER[0]))
    run.start()
    with pytest.raises(StreamingQueryException, match=told):
        run.query.processAllAvailable()
    run.stop()
    assert files_of_binshift(run) == before
    # A build that knows the format continues.
    file.write_text(known)
    run.start()
    run.query.processAllAvailable()
    assert_exact(stream, run, case, AFTER[:1])


def test_each_format_has_a_checkpoint_of_each_operator():
    """Golden checkpoints of a format stay, whatever comes after it."""
    for format in FORMATS:
        there = {f.stem for f in (FOLDER / f"format-{format}").iterdir()}
        assert there == set(CASES)
