"""A host that is paused with its executor, and goes on when others have done the executor's work.

Each test ends with a driver that reads all of the state from the checkpoint, in a process of its own.
"""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.commands import Driver
from cluster.frozen import CLEANED, HALTING, stopped_of
from cluster.standalone import Standalone
from cluster.test_frozen_drivers import FORMATS, cases
from harness import until

#: Spark takes an executor for lost that says nothing for so long.
LOST_SOON = {
    "spark.network.timeout": "15s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeoutInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "15s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}

#: Files by their names, or faults. From epoch 2 on, two partitions become four.
INSTANTS = [
    "before:/state/0/1/3*.changelog",
    "after:/state/0/1/3*.changelog",
    "before:/state/0/0/5*.changelog",
    "before:/state/0/*.zip",
    "delete:/state/0/*",
    "switch.done",
    "switch.ingest",
    "stage.file",
    "export.chunk",
    "snapshot.upload",
    "versions.deleted",
]


@pytest.fixture
def hosts(tmp_path):
    """Two machines, each with an executor of one core."""
    with Standalone(tmp_path / "cluster") as cluster:
        yield cluster, [cluster.join(), cluster.join()]


def stopping_at(instant, tmp_path):
    """Settings with which the first executor that comes to the instant stops itself."""
    faults = tmp_path / "faults"
    faults.mkdir()
    conf = {"spark.binshift.tests.faults": str(faults)}
    if ":" not in instant:
        (faults / f"{instant}.stop").touch()
        return conf
    # The shell's parent is the JVM.
    once = f"mkdir {tmp_path / 'stopped'} 2>/dev/null && kill -STOP $PPID || true"
    return conf | {"spark.executorEnv.BINSHIFT_HALT": instant, "spark.executorEnv.BINSHIFT_MEANWHILE": once}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("checkpoint_format", "instant"),
    cases(*((i,) for i in INSTANTS), always=[(1, "before:/state/0/1/3*.changelog"), (2, "switch.done")]),
)
def test_an_executor_that_wakes_late_changes_nothing(hosts, tmp_path, jvm_jar, checkpoint_format, instant):
    assert_changes_nothing(hosts, tmp_path, {"spark.jars": str(jvm_jar)}, "", checkpoint_format, instant)


def assert_changes_nothing(hosts, tmp_path, settings, checkpoint, checkpoint_format, instant):
    """One of two executors stops at the instant, and wakes up once the other one has done its work."""
    cluster, workers = hosts
    conf = {**settings, **HALTING, **LOST_SOON, **CLEANED, **FORMATS[checkpoint_format]}
    with ExitStack() as stack:
        stopping = conf | stopping_at(instant, tmp_path)
        driver = Driver(tmp_path / "run", cluster.url, stopping, checkpoint, name="-1")
        stack.enter_context(driver)
        driver("await_executors", 2)
        driver.tell("epochs", 2)
        driver.tell("rescale", 4, 64, instant in ("stage.file", "export.chunk"))
        driver.tell("epochs", 8)
        stopped = []

        def has_stopped():
            stopped[:] = [(w, pid) for w in workers for pid in stopped_of(w.pid)]
            return bool(stopped)

        assert until(has_stopped, 120), driver.errors.read_text()[-4000:]
        ((worker, pid),) = stopped
        # Nobody can end an executor of a host that does not answer.
        os.killpg(worker.pid, signal.SIGSTOP)
        for _ in range(3):
            driver.answer()
        driver("finish")
        os.killpg(worker.pid, signal.SIGCONT)
        # Its executor is told to end, and has up to then done whatever it was about to do.
        assert until(lambda: not Path(f"/proc/{pid}").exists(), 120)
        driver("epochs", 2)
        driver.assert_outputs()
        driver.kill()
        last = Driver(tmp_path / "run", "local[2]", conf, checkpoint, name="-2")
        stack.enter_context(last)
        last("epochs", 2)
        last.assert_exact(4)
