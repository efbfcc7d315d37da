"""Queries of which each run processes what is there, in a single epoch, and ends."""

import json

import pytest
from click.testing import CliRunner

from binshift import AllAtOnce
from binshift.cli.main import cli
from harness import entries, lose, plans
from local.mailbox import Mailbox
from local.queries import count_by_key
from local.settings import IDS, ONE_EPOCH

KEYS = [{"k": f"key{i}", "v": i, "t": "2026-01-01 00:00:00"} for i in range(40)]
TRIGGERS = {"available": {"availableNow": True}, "once": {"once": True}}


def partitions_of_run(run, trigger):
    """A run that ends; the number of partitions of its last epoch."""
    run.feed(KEYS)
    run.start(**TRIGGERS[trigger])
    assert run.query.awaitTermination(120)
    epoch = [p for p in run.query.recentProgress if p.numInputRows][-1]
    run.stop()
    return epoch.stateOperators[0].numShufflePartitions


def test_a_step_of_a_cancelled_migration_is_void_though_its_partitions_are_those_of_before(stream, spark):
    run = stream(count_by_key, conf=ONE_EPOCH)
    assert partitions_of_run(run, "available") == 2
    run.start()
    run.feed(KEYS)
    run.query.processAllAvailable()
    controller = run.attach()
    turned = [1 - owner for owner in controller.routing().assignment]
    plan = controller.plan(turned, strategy=AllAtOnce())
    run.stop()
    id = Mailbox(run).submit(plan)
    assert partitions_of_run(run, "available") == 2
    lose(*plans(run.checkpoint))
    assert 3 in entries(run.checkpoint)
    log = spark._jvm.org.apache.spark.sql.binshift.TestLog
    log.listen()
    assert partitions_of_run(run, "available") == 2
    (said,) = [line for line in log.heard() if "It ignores" in line]
    log.end()
    assert entries(run.checkpoint)[3].name in said
    assert Mailbox(run).answer(id)["result"] == {"migration_id": id}
    assert_exact(run)


def test_a_claim_of_an_earlier_life_of_an_epoch_does_not_hide_the_step_that_was_prepared_for_it(stream):
    run = stream(count_by_key, conf=ONE_EPOCH)
    assert partitions_of_run(run, "available") == 2
    asked = ["rescale", str(run.checkpoint), "5", "--strategy", "all-at-once"]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    assert partitions_of_run(run, "available") == 2
    (plan,) = plans(run.checkpoint)
    under_way = plan.read_text()
    assert partitions_of_run(run, "available") == 5
    # The epoch of the step was claimed, and is logged anew. The claim of the one before is gone.
    (epoch,) = [e for e in entries(run.checkpoint) if e > 0]
    run.forget(epoch, logs=("commits", "offsets"))
    (plan.parent / f".{plan.name}.crc").unlink(missing_ok=True)
    plan.write_text(under_way)
    claims = run.checkpoint / "binshift/runs"
    began = {json.loads(f.read_text())["began"]: f for f in claims.glob("[0-9]*")}
    lose(began[epoch - 1])
    # No logged epoch names an entry, because each run has one epoch.
    assert partitions_of_run(run, "available") == 5
    assert_exact(run)


def assert_exact(run):
    """Each run has all keys, so that the last epoch gives out the whole state."""
    counts = {(r.k, r["count"]) for r in run.batch().groupBy("k").count().collect()}
    assert {(key, count) for key, count, _ in run.outputs[max(run.outputs)]} == counts


@pytest.mark.long
@pytest.mark.parametrize(
    ("trigger", "conf"),
    [
        ("available", {}),
        ("available", IDS),
        pytest.param("once", {}, marks=pytest.mark.matrix),
        pytest.param("once", IDS, marks=pytest.mark.matrix),
    ],
)
def test_a_rescale_takes_effect_though_each_run_has_a_single_epoch(stream, trigger, conf):
    run = stream(count_by_key, conf=ONE_EPOCH | conf)
    assert partitions_of_run(run, trigger) == 2
    before = 2
    for wanted in (5, 3):
        asked = ["rescale", str(run.checkpoint), str(wanted), "--strategy", "all-at-once"]
        left = CliRunner().invoke(cli, asked)
        assert left.exit_code == 0, left.output
        # The step that a run makes durable takes effect in the next one.
        assert [partitions_of_run(run, trigger) for _ in range(2)] == [before, wanted]
        # As if that driver had died before it committed: the epoch of the step is run again.
        run.forget(max(int(f.name) for f in (run.checkpoint / "commits").glob("[0-9]*")))
        assert [partitions_of_run(run, trigger) for _ in range(2)] == [wanted, wanted]
        before = wanted
    status = CliRunner().invoke(cli, ["status", str(run.checkpoint), "--json"])
    assert json.loads(status.stdout)["migration"] is None
    # None was planned twice.
    assert len(entries(run.checkpoint)) == 3
    assert_exact(run)
