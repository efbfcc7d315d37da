"""The local files after a failed load, and after a snapshot that was uploaded late."""

import pytest


@pytest.fixture
def managers(spark, tmp_path):
    helper = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestFileManagers
    return helper(str(tmp_path))


@pytest.mark.parametrize("is_later", [False, True])
def test_a_file_that_a_load_takes_away_again_does_not_count_as_uploaded(managers, is_later):
    before, has_failed, is_there, after = managers.mappedAfterFailure(is_later)
    assert before
    assert has_failed
    assert not is_there
    assert not after


@pytest.mark.parametrize(("is_replaced", "left"), [(False, "none"), (True, "next run")])
def test_a_run_that_has_ended_takes_back_its_own_snapshot_and_no_other(managers, is_replaced, left):
    assert managers.leftAfterLateUpload(is_replaced) == left
