"""Five hosts: the driver and the master of a standalone cluster, three workers, and an S3 server."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster.commands import Driver
from cluster.standalone import Seat, Standalone
from field.hosts.clocks import fast_by, library
from field.hosts.cuts import DRIVER, STORE, WORKERS
from field.hosts.topology import Network
from field.places import Place, s3_place

__all__ = ["Circumstances", "Hosts", "hosts"]

HERE = Path(__file__).parent
_STORE_PORT = 9000
#: So small that cuts of some seconds are noticed, and so large that a busy machine isn't taken for a cut.
TIMEOUTS = {
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.shuffle.io.retryWait": "1s",
    "spark.hadoop.fs.s3a.connection.timeout": "4s",
    "spark.hadoop.fs.s3a.connection.establish.timeout": "2s",
    "spark.hadoop.fs.s3a.connection.request.timeout": "15s",
    "spark.hadoop.fs.s3a.attempts.maximum": "3",
    "spark.hadoop.fs.s3a.retry.limit": "3",
}
_OF_THE_MASTER = {"spark.worker.timeout": "12", "spark.deploy.maxExecutorRetries": "-1"}
_STATE = "spark.sql.streaming.stateStore."
_OWN = f"{_STATE}binshift."
_DISK_BYTES = "160m"
_WITH_A_DISK = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """The circumstances in which sessions differ.

    Parameters
    ----------
    rate : str
        How fast each host may send and receive.
    mode : str
        Output mode. In complete mode, bins that come unprepared come at the switch, otherwise on demand.
    clocks : dict
        By how many seconds a worker's clock is fast.
    settings : dict
        Of Spark and of binshift.
    """

    rate: str
    mode: str
    clocks: dict[str, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def drawn(rng: random.Random, number: int) -> Circumstances:
        """Draws those of a session; rates, modes and clocks take turns."""
        fast = dict(zip(WORKERS, rng.sample([0, 200, -200], 3), strict=True))
        settings = {
            f"{_STATE}checkpointFormatVersion": rng.choice(["1", "2"]),
            f"{_OWN}ship.timeout": rng.choice(["3s", "30s"]),
            f"{_OWN}standbys": rng.choice(["0", "1"]),
            f"{_OWN}audit": rng.choice(["off", "all"]),
        }
        return Circumstances(
            rate=("100mbit", "10mbit")[number % 2],
            mode=("update", "complete")[(number + number // 2) % 2],
            clocks=fast if number % 2 and library() is not None else {},
            settings=settings,
        )

    def told(self) -> dict[str, Any]:
        """The circumstances as a line of the results has them."""
        settings = {name.removeprefix(_OWN).removeprefix(_STATE): v for name, v in self.settings.items()}
        return {**asdict(self), "settings": settings}


class Hosts:
    """The processes on the hosts, for a test that talks to them. Made by `hosts`."""

    def __init__(
        self, folder: Path, network: Network, cluster: Standalone, place: Place, circumstances: Circumstances
    ) -> None:
        self.folder, self.network, self.cluster, self.place = folder, network, cluster, place
        self.circumstances = circumstances

    def driver(self, name: str, jar: Path, **conf: str) -> Driver:
        """Starts a query, whose checkpoint is in the store."""
        address = self.network.hosts[DRIVER].address
        settings = {
            # Each host has these files.
            "spark.jars": ",".join(f"local:{j}" for j in [jar, *self.place.jars]),
            **self.place.settings,
            **TIMEOUTS,
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.driver.memory": "768m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "2",
            "spark.sql.shuffle.partitions": "3",
            # Nobody asks from outside, and to look for that ten times a second keeps the store busy.
            f"{_OWN}requests.enabled": "false",
            "spark.binshift.tests.mode": self.circumstances.mode,
            **self.circumstances.settings,
            **conf,
        }
        return Driver(
            self.folder / name,
            self.cluster.url,
            settings,
            f"{self.place.root}/{name}",
            script=HERE / "driven.py",
            prefix=self.network.within(DRIVER),
            environment={"SPARK_LOCAL_IP": address, "BINSHIFT_TESTS_TRACE": str(self.trace(name))},
        )

    def trace(self, name: str) -> Path:
        return self.folder / f"trace-{name}"

    def disks(self) -> dict[str, Path]:
        """Where the workers' disks are seen from here."""
        pids = (worker.pid for worker in self.cluster.workers)
        return {
            name: Path(f"/proc/{pid}/root{_disk(self.folder, name)}")
            for name, pid in zip(WORKERS, pids, strict=True)
        }


@contextlib.contextmanager
def hosts(folder: Path, circumstances: Circumstances) -> Iterator[Hosts]:
    """The hosts with the cluster and the store, which end with the context."""
    with contextlib.ExitStack() as all_of_it:
        network = all_of_it.enter_context(Network([DRIVER, *WORKERS, STORE]))

        def seat(name: str) -> Seat:
            host = DRIVER if name == "master" else name
            address, prefix = network.hosts[host].address, network.within(host)
            environment = {"SPARK_LOCAL_IP": address}
            if host != DRIVER:
                disk = _disk(folder, name)
                disk.mkdir(parents=True)
                # Only the processes of the host see the mount, which ends with them.
                prefix += ["sh", "-c", _WITH_A_DISK, "sh", _DISK_BYTES, str(disk)]
                environment |= {"SPARK_LOCAL_DIRS": str(disk), **fast_by(circumstances.clocks.get(name, 0))}
            return Seat(address=address, prefix=tuple(prefix), environment=environment)

        place = all_of_it.enter_context(_store(network, folder))
        cluster = all_of_it.enter_context(Standalone(folder / "cluster", _OF_THE_MASTER, seat))
        for _ in WORKERS:
            cluster.join(cores=2)
        yield Hosts(folder, network, cluster, place, circumstances)


def _disk(folder: Path, name: str) -> Path:
    return folder / f"disk-{name}"


@contextlib.contextmanager
def _store(network: Network, folder: Path) -> Iterator[Place]:
    address = network.hosts[STORE].address
    command = [*network.within(STORE), sys.executable, str(HERE.parent / "store.py"), address, str(_STORE_PORT)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "store.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    try:
        assert process.stdout is not None
        is_ready = any(line == b"ready\n" for line in process.stdout)
        assert is_ready, (folder / "store.log").read_text()[-2000:]
        place = s3_place(f"http://{address}:{_STORE_PORT}")
        # Commands run beside the driver.
        yield dataclasses.replace(place, prefix=tuple(network.within(DRIVER)))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
