"""A file that is created by one conditional request, if the object store refuses it or doesn't answer."""

import pytest
from py4j.protocol import Py4JJavaError

#: The statuses by which stores say that they don't know conditional requests.
UNKNOWN = (400, 405, 415, 501)
#: No answer, forbidden, a conflict with another request, too many requests, and faults of the server.
FAILED = (0, 403, 409, 429, 500, 503)


@pytest.fixture
def files(spark):
    return spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.TestConditionalFiles


@pytest.mark.parametrize("status", UNKNOWN)
def test_a_file_is_written_without_a_condition_if_the_store_knows_none(files, tmp_path, status):
    assert files.created(str(tmp_path), "runs/1", status)
    assert (tmp_path / "runs/1").read_text() == "text"


@pytest.mark.parametrize("status", FAILED)
def test_a_request_that_may_still_arrive_is_not_followed_by_one_without_a_condition(files, tmp_path, status):
    with pytest.raises(Py4JJavaError, match=f"status {status}" if status else "no answer"):
        files.created(str(tmp_path), "runs/1", status)
    assert not (tmp_path / "runs/1").exists()
