"""An S3 API at an address, with the bucket `states`, until standard input ends: `store.py ADDRESS PORT`."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Callable
from contextlib import nullcontext
from threading import Lock
from typing import Any

import boto3
from moto.server import ThreadedMotoServer


class Store(ThreadedMotoServer):
    """A server that has the bucket; it chooses port 0 itself.

    Parameters
    ----------
    is_careless : bool
        Whether it ignores `If-None-Match`, and overwrites files that a client wants to create. Some stores do.
    """

    def __init__(self, address: str, port: int, *, is_careless: bool = False) -> None:
        super().__init__(address, port)
        self.is_careless = is_careless
        self._conditional = Lock()
        #: Called once when a file with such a path is written, before the client gets its answer.
        self.when_written: dict[str, Callable[[], None]] = {}

    def start(self) -> None:
        super().start()
        assert self._server is not None
        moto = self._server.app

        def app(environ: dict[str, Any], respond: Any) -> Any:
            if self.is_careless:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            # The server looks whether there is a file, and then writes it, so two could both find none.
            with self._conditional if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
                answer = moto(environ, respond)
            if environ["REQUEST_METHOD"] == "PUT":
                for pattern in [p for p in self.when_written if fnmatch.fnmatch(environ["PATH_INFO"], p)]:
                    self.when_written.pop(pattern)()
            return answer

        self._server.app = app
        self.bucket().create()

    @property
    def endpoint(self) -> str:
        host, port = self.get_host_and_port()
        return f"http://{host}:{port}"

    def bucket(self) -> Any:
        """The bucket, as boto3 sees it."""
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        return boto3.resource("s3", endpoint_url=self.endpoint, **keys).Bucket("states")


def main(address: str, port: int) -> None:
    Store(address, port).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
