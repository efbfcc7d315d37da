"""Each decoder of the JVM copes with random and damaged input; `make fuzz` tries many more inputs."""

import pytest

from fuzz.jvm import TARGETS, feed

_INPUTS = 300


@pytest.fixture
def jvm(spark):
    return spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestFuzz


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_damaged_is_decoded_or_refused_by_name(jvm, name):
    outcome = feed(jvm, name, _INPUTS)
    assert outcome.failures == []
    assert outcome.inputs == _INPUTS
