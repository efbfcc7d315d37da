"""An HDFS with one data node."""

from __future__ import annotations

import json
from pathlib import Path

from devtools.servers.jars import jars
from devtools.servers.process import Jvm

__all__ = ["Hdfs"]

_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"


class Hdfs:
    """A server that runs while the context lasts.

    Parameters
    ----------
    folder : Path
        Gets its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        self._jvm = Jvm(jars("hdfs"), folder)
        self._details = folder / "details.json"

    def __enter__(self) -> Hdfs:
        own = f"hdfs.minidfs.basedir={self._jvm.folder}/data"
        options = ("-format", "-datanodes", "1", "-nnport", "0", "-D", own, "-writeDetails", str(self._details))
        self._jvm.start(_MAIN, *options, is_ready=lambda: self._port is not None)
        return self

    def __exit__(self, *error: object) -> None:
        self._jvm.end()

    @property
    def uri(self) -> str:
        """The URI of its root."""
        return f"hdfs://127.0.0.1:{self._port}"

    @property
    def _port(self) -> int | None:
        try:
            return int(json.loads(self._details.read_text())["namenode_port"])
        except (FileNotFoundError, ValueError):
            # The file isn't written, or not complete yet.
            return None
