"""Random input, rescales and restarts, against a model in memory that knows nothing of partitions."""

import os
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from binshift import AllAtOnce, Batched, Fluid, MigrationError, OnDemand
from harness import StreamRun
from local.processors import remembering
from local.queries import count_by_key, plain_join
from traces.checker import check

T = "2026-01-01 00:00:00"
INPUT = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=12)
STRATEGIES = st.sampled_from([AllAtOnce(), Fluid(), Batched(3), OnDemand()])


class Counted:
    build, mode = staticmethod(count_by_key), "update"

    def __init__(self):
        self.values = {}

    def epoch(self, data):
        for k, v in data:
            self.values.setdefault(k, []).append(v)
        return [(f"key{k}", len(self.values[k]), sum(self.values[k])) for k in {k for k, _ in data}]


class Joined:
    build, mode = staticmethod(plain_join), "append"

    def __init__(self):
        self.left, self.right = [], []

    def epoch(self, data):
        old = Counter(self.pairs())
        self.left += [(k, v) for k, v in data if v < 24]
        self.right += [(k, v) for k, v in data if v >= 16]
        return list((Counter(self.pairs()) - old).elements())

    def pairs(self):
        return [(f"key{k}", v, f"key{k}", w) for k, v in self.left for k2, w in self.right if k == k2]


class Remembered:
    build, mode = staticmethod(remembering), "update"

    def __init__(self):
        self.values = {}

    def epoch(self, data):
        for k, v in data:
            self.values.setdefault(k, []).append(v)
        out = []
        for k in {k for k, _ in data}:
            seen = self.values[k]
            classes = {v % 4 for v in seen}
            out += [
                (f"key{k}", w, n)
                for w, n in (("total", sum(seen)), ("values", len(seen)), ("classes", len(classes)))
            ]
        return out


def machine(spark, model_class, roots):
    class Stream(RuleBasedStateMachine):
        @initialize(n=st.integers(1, 3))
        def begin(self, n):
            self.model, self.expected = model_class(), []
            conf = {"spark.sql.streaming.stateStore.binshift.bins": "6", "spark.sql.shuffle.partitions": str(n)}
            build, mode = model_class.build, model_class.mode
            self.run = StreamRun(spark, next(roots), build, mode=mode, conf=conf).start()
            self.feed([(0, 1)])

        @rule(data=INPUT)
        def feed(self, data):
            self.run.feed([{"k": f"key{k}", "v": v, "t": T} for k, v in data])
            self.run.query.processAllAvailable()
            self.expected += self.model.epoch(data)
            out = [row for batch in self.run.outputs.values() for row in batch]
            # Times of the join's sides are all the same and left out.
            assert sorted(self.plain(row) for row in out) == sorted(self.expected)

        @rule(n=st.integers(1, 6), strategy=STRATEGIES)
        def rescale(self, n, strategy):
            controller = self.run.attach()
            if controller.migration() is not None:
                with pytest.raises(MigrationError, match="is under way"):
                    controller.rescale(n, strategy=strategy, prepare=False)
            else:
                controller.rescale(n, strategy=strategy, prepare=False)

        @rule()
        def restart(self):
            self.run.stop()
            self.run.start()

        @staticmethod
        def plain(row):
            return tuple(x for x in row if not hasattr(x, "year"))

        def teardown(self):
            if hasattr(self, "run"):
                self.run.stop()

    return Stream


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("model_class", [Counted, Joined, Remembered])
def test_a_random_history_gives_what_the_model_gives(spark, model_class, tmp_path):
    run_state_machine_as_test(
        machine(spark, model_class, (tmp_path / str(n) for n in count())),
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    verdict = check(Path(os.environ["BINSHIFT_TESTS_TRACE"]), under=tmp_path)
    assert verdict.accepted > 0
    assert not verdict.unchecked
