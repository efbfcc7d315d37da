"""Hosts with addresses of their own on one machine: network namespaces that a bridge connects.

A cut makes one host send to another one's address as if its network card had moved away: the frames go to a
hardware address that nobody has. So they vanish without an error, as they do in a broken network, and only in
that direction. A route of the kind `blackhole` would tell the sender at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Host", "Network", "why_not"]

_NOBODY = "02:00:00:00:00:ff"
_DEVICE = "eth0"
#: Names of namespaces; the process that made them is part of the name.
_PREFIX = "binshift-hosts"


@dataclass(frozen=True)
class Host:
    """A host, by its name and its number in the network."""

    name: str
    number: int

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def namespace(self) -> str:
        return f"{_PREFIX}-{os.getpid()}-{self.name}"

    @property
    def port(self) -> str:
        """The bridge's end of its cable."""
        return f"bs{os.getpid()}.{self.number}"


def why_not() -> str:
    """Why there can't be hosts here; empty if there can be."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found; install iproute2"
    trial = f"{_PREFIX}-{os.getpid()}-trial"
    made = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace can be made: {made.stderr.strip()}"
    _run("ip", "netns", "del", trial)
    return ""


class Network:
    """The hosts exist while the context lasts; at its end their processes are killed.

    Parameters
    ----------
    names : sequence of str
        Of the hosts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.hosts = {name: Host(name, number) for number, name in enumerate(names, 1)}
        self._bridge = f"bs{os.getpid()}"

    def __enter__(self) -> Network:
        _remove_what_was_left()
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "link", "set", self._bridge, "up")
            for host in self.hosts.values():
                self._connect(host)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def within(self, host: str) -> list[str]:
        """The words with which a command begins so that it runs on a host."""
        return ["ip", "netns", "exec", self.hosts[host].namespace]

    def cut(self, source: str, target: str) -> None:
        """Loses whatever `source` sends to `target`, until it is healed."""
        self._neighbours(source, "replace", target, "lladdr", _NOBODY, "nud", "permanent")

    def heal(self, source: str, target: str) -> None:
        """The next packet asks for the target's hardware address again."""
        self._neighbours(source, "del", target)

    def limit(self, rate: str) -> None:
        """Limits what each host sends, and what it receives, such as to `10mbit`."""
        for host in self.hosts.values():
            shape = ["root", "tbf", "rate", rate, "burst", "128kb", "latency", "300ms"]
            _run("tc", "-n", host.namespace, "qdisc", "replace", "dev", _DEVICE, *shape)
            _run("tc", "qdisc", "replace", "dev", host.port, *shape)

    def _connect(self, host: Host) -> None:
        name = host.namespace
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", host.port, "type", "veth", "peer", "name", _DEVICE, "netns", name)
        _run("ip", "link", "set", host.port, "master", self._bridge, "up")
        _run("ip", "-n", name, "addr", "add", f"{host.address}/24", "dev", _DEVICE)
        for device in ("lo", _DEVICE):
            _run("ip", "-n", name, "link", "set", device, "up")

    def _neighbours(self, source: str, action: str, target: str, *how: str) -> None:
        name, address = self.hosts[source].namespace, self.hosts[target].address
        _run("ip", "-n", name, "neigh", action, address, "dev", _DEVICE, *how)

    def _remove(self) -> None:
        for host in self.hosts.values():
            _remove_namespace(host.namespace)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)


def _remove_what_was_left() -> None:
    """Removes the hosts of runs that were killed."""
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(_PREFIX) and not os.path.exists(f"/proc/{name.split('-')[2]}"):
            _remove_namespace(name)
            bridge = f"bs{name.split('-')[2]}"
            subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def _remove_namespace(name: str) -> None:
    """Kills the processes of a namespace, and deletes it with its end of the cable."""
    there = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for pid in there.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
