"""The driver dies at every instant of a takeover; started again, it goes on with exact results."""

import json

import pytest

#: Epochs 0 to 2 are of Spark's provider, and epoch 3 takes over.
INSTANTS = [
    "before:/offsets/3",
    "after:/offsets/3",
    "after:/binshift/layout.json",
    "after:/binshift/routing/3-*",
    "before:/state/0/0/4.zip",
    "after:/state/0/1/4.zip",
    "before:/commits/3",
    "after:/commits/3",
]
DEFAULT = ("after:/state/0/1/4.zip",)


#: No takeover begins with it.
REFUSED = "--bins=none"


def halting(jvm_jar):
    return [
        "--conf=spark.sql.streaming.checkpointFileManagerClass=binshift.tests.HaltingCheckpointFileManager",
        f"--conf=spark.jars={jvm_jar}",
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    "instant", [pytest.param(i, marks=[pytest.mark.matrix] * (i not in DEFAULT)) for i in INSTANTS]
)
def test_a_driver_that_dies_while_it_takes_over_goes_on_exactly_once(drive, check, jvm_jar, instant):
    arguments = halting(jvm_jar)
    died = drive(*arguments, env={"BINSHIFT_HALT": instant}, script="takeover.py")
    assert died.returncode != 0, f"nothing happened at {instant}: {died.stdout[-2000:]}"
    report = check(partitions=2, last=drive(*arguments, script="takeover.py"))
    assert report["taken_over_at"] == 3


@pytest.mark.long
def test_a_takeover_whose_driver_died_before_it_was_refused_is_taken_back_by_the_next(
    drive, check, jvm_jar, tmp_path
):
    logged = tmp_path / "run/checkpoint/offsets/3"
    arguments = halting(jvm_jar)
    drive(*arguments, REFUSED, env={"BINSHIFT_HALT": "after:/offsets/3"}, script="takeover.py")
    assert logged.exists()
    refused = drive(*arguments, REFUSED, script="takeover.py")
    assert "must be a whole number" in refused.stderr
    assert not logged.exists()
    last = drive(*arguments, "--stock-epochs=5", "--epochs=7", script="takeover.py")
    assert check(partitions=2, last=last)["taken_over_at"] == 5


@pytest.mark.long
def test_a_takeover_that_another_driver_took_back_is_not_begun(drive, check, jvm_jar, tmp_path):
    checkpoint = tmp_path / "run/checkpoint"
    arguments = halting(jvm_jar)
    meanwhile = f"rm {checkpoint}/offsets/3 {checkpoint}/offsets/.3.crc"
    env = {"BINSHIFT_HALT": "after:/binshift/layout.json", "BINSHIFT_MEANWHILE": meanwhile}
    refused = drive(*arguments, env=env, script="takeover.py")
    assert "offsets/3 no more" in refused.stderr
    assert list((checkpoint / "state/0").rglob("4*.zip")) == []
    last = drive(*arguments, "--stock-epochs=5", "--epochs=7", script="takeover.py")
    assert check(partitions=2, last=last)["taken_over_at"] == 5


@pytest.mark.long
def test_a_takeover_that_another_driver_began_while_it_was_taken_back_is_left_to_it(
    drive, check, jvm_jar, tmp_path
):
    checkpoint = tmp_path / "run/checkpoint"
    run = {"run": "other", "goes_on_from": 3, "began": 3, "routing": "3:deadbeef"}
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps({"format": 1, "runs": [run]}))
    arguments = halting(jvm_jar)
    meanwhile = f"mkdir -p {checkpoint}/binshift && cp {runs} {checkpoint}/binshift/runs.json"
    env = {"BINSHIFT_HALT": "delete:/offsets/3", "BINSHIFT_MEANWHILE": meanwhile}
    refused = drive(*arguments, REFUSED, env=env, script="takeover.py")
    assert "must be a whole number" in refused.stderr
    assert (checkpoint / "binshift/runs.json").exists()
    assert "binshift.StateStoreProvider" in (checkpoint / "offsets/3").read_text()
    last = drive(*arguments, script="takeover.py")
    assert check(partitions=2, last=last)["taken_over_at"] == 3
