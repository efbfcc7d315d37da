"""Checkpoints that an earlier build wrote, on Spark 4.1, are read, rescaled and gone on with.

The oracle is the same query over the same input on Spark's own RocksDB provider, in this Spark throughout.
"""

import json

import pytest

import binshift.inspect
from binshift import AllAtOnce
from golden_checkpoints import EPOCHS, FOLDER, FORMAT, cases
from harness import STOCK, assert_same_results, rows
from local.inspected import comparable, expected, read
from local.queries import QUERIES

CASES = {case.id: case for case in cases()}
#: In the ordinary run; the others are of the matrix.
USUAL = {"join-full"}
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
    """State is read without a JVM as Spark reads it."""
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        for option in QUERIES[case.name].state:
            found = comparable(read(checkpoint, version, option))
            assert found
            assert found == comparable(expected(run, version, option))


def assert_exact(stream, run, case):
    query = QUERIES[case.name]
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK, conf=case.conf).start()
    oracle.run(*EPOCHS, *AFTER)
    for epoch in EPOCHS:
        # They came out of the build that wrote the checkpoint.
        del oracle.outputs[epoch]
    assert_same_results(run, oracle, query.state)


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=id, marks=[pytest.mark.matrix] * (id not in USUAL)) for id, case in CASES.items()],
)
def test_a_checkpoint_of_an_earlier_build_is_read_rescaled_and_gone_on_with(stream, case, format):
    run = unpacked(stream, case, format)
    assert_inspected(run, case, len(EPOCHS))
    run.start()
    run.query.processAllAvailable()
    assert run.outputs == {}
    assert run.attach().routing().partitions == 4
    assert [r["bins_moved"] > 0 for r in run.attach().history().to_pylist()] == [True] * 2
    for epoch in AFTER:
        run.run(epoch)
        if epoch == AFTER[0]:
            run.attach().rescale(3, strategy=AllAtOnce(), prepare=False)
    assert run.attach().routing().partitions == 3
    assert_exact(stream, run, case)
    run.stop()
    assert_inspected(run, case, AFTER[-1] + 1)


def test_each_format_has_its_checkpoints():
    """Golden checkpoints of a format stay, whatever comes after it."""
    for format in FORMATS:
        there = {f.stem for f in (FOLDER / f"format-{format}").iterdir()}
        assert there == set(CASES)
