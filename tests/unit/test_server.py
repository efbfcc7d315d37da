"""A client of Spark Connect on a server that doesn't report its version of binshift."""

from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from binshift import ConfigurationError
from binshift.server import require_server


class Failing:
    """A session whose server answers each statement with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def sql(self, text: str) -> Any:
        raise self.error


def ask(error: Exception) -> None:
    session: Any = Failing(error)
    require_server(session, "start it anew")


@pytest.mark.parametrize(
    "condition",
    ["CATALOG_NOT_FOUND", "FAILED_TO_LOAD_ROUTINE", "CANNOT_LOAD_CATALOG.PLUGIN_CLASS_NOT_FOUND"],
)
def test_a_server_that_has_no_such_catalog_is_without_binshift(condition):
    error = AnalysisException(f"[{condition}] not found", errorClass=condition)
    with pytest.raises(ConfigurationError, match=r"has no binshift .* not found\); start it anew") as refused:
        ask(error)
    assert refused.value.condition == "SERVER_WITHOUT_BINSHIFT"


@pytest.mark.parametrize("condition", ["INVALID_HANDLE.SESSION_CLOSED", "INSUFFICIENT_PERMISSIONS", None])
def test_a_server_that_cannot_answer_is_not_taken_for_one_without_binshift(condition):
    error = PySparkException("failed to connect", errorClass=condition)
    with pytest.raises(PySparkException) as raised:
        ask(error)
    assert raised.value is error
