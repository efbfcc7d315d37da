"""The documentation's snippets that need a query run on a shared query that always gets input."""

import ast
import re
from contextlib import redirect_stdout
from io import StringIO
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

import binshift
from harness import until
from snippets import Snippet, snippets

NEEDY = [s for s in snippets() if s.needs_a_query]
#: Snippets that need several executors; tests/cluster/test_executors.py drains one.
REFUSED = {'controller.drain("3").wait(timeout=600)': "EXECUTOR_NOT_ALIVE"}


class Input(Thread):
    """Feeds a file as soon as the one before is processed, until it is stopped."""

    def __init__(self, run) -> None:
        super().__init__(daemon=True)
        self._run, self._stopped = run, Event()

    def run(self) -> None:
        epoch = 9
        while not self._stopped.is_set() and self._run.query.isActive:
            self._run.run(epoch)
            epoch += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@pytest.mark.long
def test_the_snippets_that_need_a_query_run(stream, spark):
    run = stream(lambda df: df.groupBy("k").count(), mode="update")
    run.start(name="orders")
    run.run(*range(9))
    controller = run.attach()
    names = {
        "binshift": binshift,
        "query": run.query,
        "location": str(run.checkpoint),
        "controller": controller,
    }
    for snippet in NEEDY:
        assert snippet.free_names <= names.keys(), (
            f"{snippet.place} is about something that this test does not have"
        )
    known = {n for s in NEEDY for n in s.free_names}
    assert known >= {"query", "location", "controller"}
    # Versions that a snippet names are there before the query goes on.
    for snippet in (s for s in NEEDY if "location" in s.free_names):
        execute(snippet, names)
    make_active(run.spark)
    feeder = Input(run)
    feeder.start()
    try:
        # As in the page on errors: another migration is under way.
        controller.rescale(4, strategy=binshift.Batched(8, gap=1))
        for snippet in (s for s in NEEDY if "location" not in s.free_names):
            execute(snippet, names)
    finally:
        feeder.stop()
        make_active(spark)
    assert controller.routing().partitions == 8
    assert run.outputs.keys() >= set(range(9))
    assert sorted(run.state()) == sorted(((r.k,), (r["count"],)) for r in run.build(run.batch()).collect())


def execute(snippet: Snippet, names: dict) -> None:
    """Runs a snippet by its statements: a page shows alternatives, so each waits for the migration before."""
    out = StringIO()
    for statement in snippet.tree.body:
        program = compile(ast.Module([statement], []), snippet.place, "exec")
        if (condition := REFUSED.get(ast.unparse(statement).replace("'", '"'))) is not None:
            with pytest.raises(binshift.PlanError) as refused:
                exec(program, names)
            assert refused.value.condition == condition
        else:
            with redirect_stdout(out):
                exec(program, names)
        assert until(lambda: names["controller"].migration() is None)
    # The figures are those of the page's query; the names are compared.
    assert first_word(out.getvalue()) in {first_word(snippet.printed), "keep"}


def make_active(session: SparkSession) -> None:
    """Makes `session` the active one, where a query's name is looked up."""
    session.createDataFrame([], "k string")


def first_word(text: str) -> str:
    return next(iter(re.findall(r"\w+", text)), "")
