"""The driver dies at every instant of a takeover; started again, it goes on with exact results."""

import pytest

#: Epochs 0 to 2 are of Spark's provider, and epoch 3 takes over.
INSTANTS = [
    "before:/offsets/3",
    "after:/offsets/3",
    "after:/binshift/layout.json",
    "after:/binshift/routing/3",
    "before:/state/0/0/4.zip",
    "after:/state/0/1/4.zip",
    "before:/commits/3",
    "after:/commits/3",
]
DEFAULT = ("after:/state/0/1/4.zip",)


@pytest.mark.long
@pytest.mark.parametrize(
    "instant", [pytest.param(i, marks=[pytest.mark.matrix] * (i not in DEFAULT)) for i in INSTANTS]
)
def test_a_driver_that_dies_while_it_takes_over_goes_on_exactly_once(drive, check, jvm_jar, instant):
    arguments = [
        "--conf=spark.sql.streaming.checkpointFileManagerClass=binshift.tests.HaltingCheckpointFileManager",
        f"--conf=spark.jars={jvm_jar}",
    ]
    died = drive(*arguments, env={"BINSHIFT_HALT": instant}, script="takeover.py")
    assert died.returncode != 0, f"nothing happened at {instant}: {died.stdout[-2000:]}"
    report = check(partitions=2, last=drive(*arguments, script="takeover.py"))
    assert report["taken_over_at"] == 3
