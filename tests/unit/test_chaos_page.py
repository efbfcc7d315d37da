"""docs/chaos.md has the results of the recorded runs, and none of them is a failure."""

from chaos import run


def test_the_page_has_the_table_of_the_results_and_nothing_was_wrong():
    text, done = run.PAGE.read_text(), run.read(run.RESULTS)
    assert run.page(text, done) == text
    assert done
    assert [d for d in done if "wrong" in d] == []
