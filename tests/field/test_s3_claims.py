"""Only one of several drivers continues with a checkpoint in an object store."""

from contextlib import ExitStack

import pytest

from cluster.frozen import Drivers
from cluster.test_frozen_drivers import (  # noqa: F401 - run here on an object store
    FORMATS,
    test_a_driver_that_is_replaced_at_any_instant_of_a_migration_changes_nothing,
    test_a_run_that_wakes_after_an_epoch_that_it_ran_again_leaves_the_table_in_force,
    test_a_run_that_wakes_in_its_first_epoch_deletes_nothing_of_its_successor,
    test_a_table_that_a_replaced_driver_writes_late_is_not_obeyed,
)
from field.places import s3_place
from harness import session

pytestmark = [pytest.mark.field, pytest.mark.timeout(3600)]


@pytest.fixture
def drivers(tmp_path, jvm_jar, s3, checkpoint_format):
    place = s3_place(s3)
    conf = place.conf(jvm_jar) | FORMATS[checkpoint_format]
    with ExitStack() as stack:
        yield Drivers(tmp_path / "run", jvm_jar, conf, stack, f"{place.root}/{tmp_path.name}")


def test_of_runs_that_claim_a_place_at_once_one_gets_it(s3, jvm_jar, tmp_path):
    place = s3_place(s3)
    spark = session("local[2]", **place.conf(jvm_jar))
    claims = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.TestClaims
    assert list(claims.race(spark._jsparkSession, f"{place.root}/{tmp_path.name}", 8, 10)) == [1] * 10
