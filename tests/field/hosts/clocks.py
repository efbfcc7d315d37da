"""Clocks that differ between hosts, by libfaketime, which Debian's package client fetches."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from devtools.servers.jars import BUILD

__all__ = ["fast_by", "library"]


def library() -> Path | None:
    """The library; none where there is no such package client."""
    folder = BUILD / "faketime"
    if not folder.exists() and shutil.which("apt-get") and shutil.which("dpkg"):
        staging = BUILD / f"faketime.{os.getpid()}"
        staging.mkdir(parents=True)
        fetch = "apt-get download libfaketime && dpkg -x libfaketime_*.deb ."
        if subprocess.run(["sh", "-c", fetch], cwd=staging, capture_output=True, check=False).returncode == 0:
            staging.rename(folder)
        else:
            shutil.rmtree(staging)
    return next(folder.glob("usr/lib/*/faketime/libfaketimeMT.so.1"), None)


def fast_by(seconds: int) -> dict[str, str]:
    """The environment of a host whose clock is fast. Only the time of day: waits are as long as elsewhere."""
    lib = library()
    if seconds == 0 or lib is None:
        return {}
    only_the_time_of_day = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
    return {"LD_PRELOAD": str(lib), "FAKETIME": f"{seconds:+d}s", **only_the_time_of_day}
