"""The report on Spark's own test suites, from their outcomes with two providers."""

import pytest

from devtools.suites.comparing import steadied
from devtools.suites.explained import EXPLAINED
from devtools.suites.order import SELECTION, by_weight
from devtools.suites.report import NOT_RUN, Comparison, page, section, sections
from devtools.suites.results import Outcome, Results
from snippets import ROOT

SUITE = "streaming.SomeSuite"


def outcome(provider="binshift", suite=SUITE, passed=3, **fields):
    return Outcome(
        suite=suite, spark="4.2.0", provider=provider, version="1", passed=passed, **{"ended": True, **fields}
    )


def test_an_outcome_replaces_an_earlier_one_and_keeps_its_line(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    others = [outcome("stock"), outcome(suite="streaming.AnotherSuite", skipped=("ignored",))]
    for one in (outcome(failed=("a", "b")), *others, outcome(unsteady=("a",))):
        results.put(one)
    assert results.of(SUITE, "4.2.0", "binshift") == outcome(unsteady=("a",))
    assert results.of(SUITE, "4.1.0", "binshift") is None
    lines = results.file.read_text().splitlines()
    assert [line.split('"')[3] for line in lines] == ["streaming.AnotherSuite", SUITE, SUITE]
    results.forget([SUITE], "4.2.0")
    assert [results.of(SUITE, "4.2.0", p) for p in ("binshift", "stock")] == [None, None]
    assert results.of("streaming.AnotherSuite", "4.2.0", "binshift") == others[1]


def test_only_what_passes_on_one_provider_differs_and_needs_a_reason(monkeypatch):
    monkeypatch.setattr("devtools.suites.report.EXPLAINED", [("SomeSuite", "its own", "because")])
    ours = outcome(failed=("both", "of its own", "another"))
    compared = Comparison(ours, outcome("stock", passed=2, failed=("both",)))
    assert compared.failed_on_both == {"both"}
    assert compared.differs == {"another": None, "of its own": "because"}
    assert compared.unexplained == 1
    assert not Comparison(outcome()).differs


def test_tests_that_a_suite_did_not_come_to_are_a_difference():
    compared = Comparison(outcome(passed=1, ended=False), outcome("stock", passed=3))
    assert compared.differs == {NOT_RUN: None}
    assert not compared.passes_here(NOT_RUN)
    assert compared.unexplained == 2


def test_a_test_that_passes_when_it_runs_once_more_is_unsteady():
    first = outcome(failed=("a", "b"))
    repeated = outcome(failed=("b",), unsteady=("a",), repeated=True)
    assert steadied(first, outcome(passed=1, failed=("b",))) == repeated
    # A run in which nothing passed tells nothing about tests that it doesn't name.
    assert steadied(first, outcome(passed=0)) == outcome(failed=("a", "b"), repeated=True)


def test_suites_of_state_come_before_sources_and_sinks():
    state = "execution.streaming.state.RocksDBSuite"
    assert by_weight(["streaming.sources.A", "streaming.ZSuite", state, SELECTION[1], SELECTION[0]]) == [
        *SELECTION[:2],
        state,
        "streaming.ZSuite",
        "streaming.sources.A",
    ]


def test_the_page_says_what_has_run_and_what_has_not():
    compared = Comparison(outcome(failed=("x",), unsteady=("y",)), outcome("stock", failed=("x",)))
    text = section([compared], "4.2.0", ["streaming.OtherSuite"])
    assert f"| `{SUITE}` | 5 | 3 | 1 | 1 | 0 |" in text
    assert f"| `{SUITE}` | y |" in text
    assert "- `streaming.OtherSuite`" in text
    assert "Nothing." in text


def test_the_page_keeps_what_it_says_of_other_releases():
    old, new = (
        section([Comparison(outcome(passed=n))], spark, []) for n, spark in ((3, "4.1.1"), (4, "4.2.0"))
    )
    text = page({"4.1.1": old, "4.2.0": new})
    assert sections(text) == {"4.1.1": old, "4.2.0": new}
    assert text.index("## Spark 4.2.0") < text.index("## Spark 4.1.1")
    newer = section([Comparison(outcome(passed=5))], "4.2.0", [])
    assert sections(page(sections(text) | {"4.2.0": newer})) == {"4.1.1": old, "4.2.0": newer}
    written = (ROOT / "docs/spark-suites.md").read_text()
    assert page(sections(written)) == written


@pytest.mark.parametrize(("suite", "part", "reason"), EXPLAINED)
def test_a_reason_is_for_some_tests_and_not_for_all(suite, part, reason):
    assert len(suite) > 5
    assert len(part) > 10
    assert len(reason) > 20
