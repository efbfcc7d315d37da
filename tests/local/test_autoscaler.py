"""The autoscaler on a running query."""

from typing import Any

import pytest
from pyspark.sql import functions as F

from binshift import AllAtOnce, Autoscaler, ConfigurationError
from binshift.autoscaling import Action
from harness import STOCK, rows, until
from local.migrations import feed_until
from local.queries import count_by_key


def test_an_autoscaler_advises_and_acts_on_a_running_query(stream):
    run = stream(count_by_key).start(processingTime="100 milliseconds")
    controller = run.attach()
    run.run(0)
    # Its epochs take longer than their trigger's interval, but there are no cores for more partitions.
    busy = Autoscaler(controller, min_partitions=1, max_partitions=8, window=2)
    # Both files come at once, so that the second epoch begins when the first ends.
    for epoch in (1, 2):
        run.feed(rows(epoch))
    run.query.processAllAvailable()
    held = busy.step()
    assert held.action is Action.HOLD
    assert held.utilization == pytest.approx(1, abs=0.3)
    assert "the limit is 2 cores" in held.reason
    # With a target of 1,000 s per epoch, the query is nearly idle.
    idle: dict[str, Any] = {"window": 2, "cooldown_s": 0.0, "epoch_s": 1000.0, "strategy": AllAtOnce()}
    adviser = Autoscaler(controller, min_partitions=1, max_partitions=8, **idle)
    assert (adviser.step().action, adviser.decisions[-1].desired) == (Action.RESCALE, 1)
    assert controller.migration() is None
    with Autoscaler(
        controller, min_partitions=1, max_partitions=8, interval_s=0.05, mode="act", **idle
    ) as autoscaler:
        feed_until(run, 3, lambda: controller.routing().partitions == 1)
        assert until(lambda: autoscaler.decisions[-1].reason != "a migration is under way")
    assert not autoscaler.is_running
    assert autoscaler.failure is None
    assert controller.routing().partitions == 1
    acted = [d for d in autoscaler.decisions if d.action is Action.RESCALE]
    assert [(d.current, d.desired) for d in acted] == [(2, 1)]
    expected = run.batch().groupBy("k").agg(F.count("*").alias("n"))
    counts = {k[0]: v[0] for k, v in run.state()}
    assert counts == {r.k: r.n for r in expected.collect()}


def test_a_query_whose_trigger_has_no_interval_cannot_be_judged_by_it(stream):
    run = stream(count_by_key).start()
    with pytest.raises(ConfigurationError, match="epoch_s"):
        Autoscaler(run.attach(), min_partitions=1, max_partitions=8)
    with pytest.raises(ConfigurationError, match="mode 'try' is impossible"):
        Autoscaler(run.attach(), min_partitions=1, max_partitions=8, mode="try", epoch_s=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="interval 0 is impossible"):
        Autoscaler(run.attach(), min_partitions=1, max_partitions=8, interval_s=0, epoch_s=1)


def test_a_local_master_has_no_executors_to_ask_for(stream):
    run = stream(count_by_key).start()
    with pytest.raises(ConfigurationError, match=r"a local master has one executor.*max_executors") as refused:
        Autoscaler(run.attach(), min_partitions=1, max_partitions=8, epoch_s=1, max_executors=2)
    assert refused.value.condition == "EXECUTORS_NOT_OURS"


def test_executors_with_partitions_are_not_given_back_and_those_of_other_queries_are_known(stream):
    run, other = (stream(count_by_key, name).start() for name in ("run", "other"))
    link = run.attach()._link
    assert link.planned_epoch()[0] == -1
    run.run(0)
    assert link.planned_epoch()[0] == 0
    assert link.give_back_executors(["driver", "7"]) == ["7"]
    assert link.executors_of_others() == []
    other.attach()
    other.run(0)
    assert link.executors_of_others() == ["driver"]
    other.query.stop()
    assert link.executors_of_others() == []


def test_executors_with_partitions_of_a_query_on_spark_s_own_provider_are_known(stream):
    run, other = stream(count_by_key).start(), stream(count_by_key, "other", provider=STOCK)
    other.start()
    link = run.attach()._link
    run.run(0)
    assert link.executors_of_others() == []
    other.run(0)
    assert link.executors_of_others() == ["driver"]
    other.run(1)
    assert link.executors_of_others() == ["driver"]
    other.query.stop()
    assert link.executors_of_others() == []
