"""The cuts cut what they say, and nothing else."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from field.hosts.clocks import fast_by, library
from field.hosts.cuts import KINDS, drawn, suffered
from field.hosts.topology import Network

pytestmark = [pytest.mark.field, pytest.mark.usefixtures("namespaces")]

#: Says what arrives, and answers nothing.
_LISTEN = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 9000)); print("ready", flush=True)
while True: print(s.recv(100).decode(), flush=True)
"""
_SEND = "import socket, sys; socket.socket(2, 2).sendto(sys.argv[2].encode(), (sys.argv[1], 9000))"
#: Takes one stream to its end.
_RECEIVE = """
import socket
s = socket.create_server(("", 9001)); print("ready", flush=True)
c = s.accept()[0]
while c.recv(1 << 16): pass
"""
_STREAM = "import socket, sys; socket.create_connection((sys.argv[1], 9001)).sendall(bytes(2_000_000))"


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(["a", "b", "c"]) as made:
        yield made


@pytest.fixture
def listening(network: Network) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a host's listener."""
    there = []

    def start(host: str) -> subprocess.Popen[str]:
        command = [*network.within(host), sys.executable, "-c", _LISTEN, network.hosts[host].address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        there.append(process)
        assert heard(process) == "ready"
        return process

    yield start
    for process in there:
        process.kill()
        process.communicate()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send(network: Network, source: str, target: str, text: str) -> None:
    command = [sys.executable, "-c", _SEND, network.hosts[target].address, text]
    subprocess.run([*network.within(source), *command], check=True)


def test_a_cut_loses_one_direction_silently_until_it_is_healed(network, listening):
    a, b = listening("a"), listening("b")
    send(network, "a", "b", "before")
    assert heard(b) == "before"
    network.cut("a", "b")
    send(network, "a", "b", "lost")
    send(network, "b", "a", "the other way")
    assert heard(a) == "the other way"
    send(network, "c", "b", "from another")
    assert heard(b) == "from another"
    network.heal("a", "b")
    send(network, "a", "b", "after")
    assert heard(b) == "after"


def test_a_host_receives_no_faster_than_its_limit(network):
    network.limit("10mbit")
    receiver = subprocess.Popen(
        [*network.within("b"), sys.executable, "-c", _RECEIVE], stdout=subprocess.PIPE, text=True
    )
    assert heard(receiver) == "ready"
    began = time.monotonic()
    address = network.hosts["b"].address
    subprocess.run([*network.within("a"), sys.executable, "-c", _STREAM, address], check=True)
    assert receiver.wait(60) == 0
    # 16 Mbit at 10 Mbit/s, of which a bucket of 1 Mbit at each end is free.
    assert time.monotonic() - began > 1.3


def test_a_full_disk_has_room_again_afterwards(network, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["sh", "-c", 'mount -t tmpfs -o size=4m tmpfs "$0" && echo ready && exec sleep 60', str(disk)]
    with subprocess.Popen([*network.within("a"), *mounted], stdout=subprocess.PIPE, text=True) as process:
        assert heard(process) == "ready"
        seen = Path(f"/proc/{process.pid}/root{disk}")
        cut = drawn(random.Random(1), "full disk of an executor")
        with suffered(network, cut, {cut.disk: seen}), pytest.raises(OSError, match="No space"):
            (seen / "file").write_bytes(bytes(10_000))
        (seen / "file").write_bytes(bytes(10_000))
        process.kill()
    assert list(disk.iterdir()) == []


def test_a_clock_is_fast_by_some_seconds():
    if library() is None:
        pytest.skip("there is no libfaketime")
    told = subprocess.run(["date", "+%s"], env=fast_by(200), capture_output=True, text=True, check=True)
    assert 195 < int(told.stdout) - datetime.now(UTC).timestamp() < 205


def test_a_seed_draws_the_same_cut_again():
    for kind in KINDS:
        cut = drawn(random.Random(kind), kind)
        assert cut == drawn(random.Random(kind), kind)
        assert bool(cut.links) != bool(cut.disk)


def test_the_hosts_are_gone_with_their_processes_afterwards(tmp_path):
    with Network(["a"]) as network:
        left = subprocess.Popen([*network.within("a"), "sleep", "600"])
        name = network.hosts["a"].namespace
    assert left.wait(10) != 0
    there = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert name not in there
