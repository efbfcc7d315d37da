"""Only one of several drivers continues with a checkpoint in an object store or HDFS."""

import os
import signal
from contextlib import ExitStack

import pytest

from cluster.conftest import traced  # noqa: F401 - what the drivers do is compared with the model
from cluster.frozen import Drivers
from cluster.test_frozen_cleanups import CONF as CLEANED
from cluster.test_frozen_cleanups import assert_leaves_files_of_its_successor
from cluster.test_frozen_drivers import (  # noqa: F401 - run here on servers
    FORMATS,
    assert_goes_on,
    test_a_driver_that_is_replaced_at_any_instant_of_a_migration_changes_nothing,
    test_a_driver_that_wakes_as_it_deletes_its_plan_leaves_the_one_that_its_successor_has_accepted,
    test_a_run_that_wakes_after_an_epoch_that_it_ran_again_leaves_the_table_in_force,
    test_a_run_that_wakes_in_its_first_epoch_deletes_nothing_of_its_successor,
    test_a_start_that_was_wound_back_and_wakes_late_deletes_nothing_of_its_successor,
    test_a_table_that_a_replaced_driver_writes_late_is_not_obeyed,
)
from cluster.test_frozen_executors import assert_changes_nothing, hosts  # noqa: F401
from devtools.servers.jars import jars
from devtools.servers.process import Jvm
from field.places import hdfs_place, s3_place
from harness import session

pytestmark = [pytest.mark.field, pytest.mark.timeout(3600)]


class DriversOnS3(Drivers):
    """The server stops them at a file that binshift creates by one request, which no file manager sees."""

    def __init__(self, store, folder, jvm_jar, conf, stack):
        place = s3_place(store.endpoint)
        super().__init__(
            folder / "run", jvm_jar, place.conf(jvm_jar) | conf, stack, f"{place.root}/{folder.name}"
        )
        self.store = store

    def start(self, stop="", faults=()):
        instant, _, path = stop.partition(":")
        if not path.startswith(("/binshift/routing/", "/binshift/runs/")):
            return super().start(stop, faults)
        assert instant == "after"
        driver = super().start(faults=faults)
        self.store.when_written[f"*{path}"] = lambda: os.kill(driver.jvm, signal.SIGSTOP)
        return driver

    def delete(self, files):
        for file in files:
            self.store.bucket().Object(f"{self.root.parent.name}/{file}").delete()


class DriversOnHdfs(Drivers):
    def delete(self, files):
        folder = self.root.parent / "shell"
        shell = Jvm([*jars("hdfs"), folder], folder)
        # The command doesn't start without one.
        (folder / "core-site.xml").write_text("<configuration/>")
        shell.run("org.apache.hadoop.fs.FsShell", "-rm", *(f"{self.place}/{file}" for file in files))


@pytest.fixture(params=["s3", "hdfs"])
def drivers(request, tmp_path, jvm_jar, checkpoint_format):
    conf = FORMATS[checkpoint_format]
    with ExitStack() as stack:
        if request.param == "s3":
            yield DriversOnS3(request.getfixturevalue("s3_store"), tmp_path, jvm_jar, conf, stack)
        else:
            root = hdfs_place(request.getfixturevalue("hdfs")).root
            yield DriversOnHdfs(tmp_path / "run", jvm_jar, conf, stack, f"{root}/{tmp_path.name}")


def test_of_runs_that_claim_a_place_at_once_one_gets_it(place, jvm_jar, tmp_path):
    spark = session("local[2]", **place.conf(jvm_jar))
    claims = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.TestClaims
    assert list(claims.race(spark._jsparkSession, f"{place.root}/{tmp_path.name}", 8, 10)) == [1] * 10


def test_a_run_leaves_a_later_claim_alone_though_the_s3_store_ignores_conditions(
    careless_s3_store, jvm_jar, tmp_path
):
    claim = careless_s3_store.bucket().Object(f"{tmp_path.name}/binshift/runs/2")
    with ExitStack() as stack:
        drivers = DriversOnS3(careless_s3_store, tmp_path, jvm_jar, FORMATS[1], stack)
        driver = drivers.start()
        driver("epochs", 2)
        driver.kill()
        first = drivers.start(faults=["run.begin.stop"])
        first.tell("epochs", 1)
        first.await_stop()
        second = drivers.start()
        second("epochs", 1)
        of_second = claim.get()["Body"].read()
        assert "ANOTHER_RUN" in first.wake_in_vain()
        assert claim.get()["Body"].read() == of_second
        assert_goes_on(drivers, second)
    # The store itself doesn't keep it.
    claim.put(Body=b"overwritten", IfNoneMatch="*")
    assert claim.get()["Body"].read() == b"overwritten"


#: In the middle of a partition that is retired, and between the files of a snapshot and the snapshot.
@pytest.mark.parametrize(
    ("checkpoint_format", "instant"), [(1, "retired.file"), (2, "delete:/state/0/*/10*.zip")]
)
def test_a_driver_that_wakes_between_two_deletes_leaves_what_is_needed_on_s3(
    s3_store, tmp_path, jvm_jar, checkpoint_format, instant
):
    conf = CLEANED | FORMATS[checkpoint_format]
    with ExitStack() as stack:
        assert_leaves_files_of_its_successor(DriversOnS3(s3_store, tmp_path, jvm_jar, conf, stack), instant)


def test_an_executor_that_wakes_late_changes_nothing_on_s3(hosts, s3, tmp_path, jvm_jar):  # noqa: F811
    place = s3_place(s3)
    checkpoint = f"{place.root}/{tmp_path.name}"
    # It was about to upload.
    instant = "before:/state/0/1/3*.changelog"
    assert_changes_nothing(hosts, tmp_path, place.conf(jvm_jar), checkpoint, 1, instant)
