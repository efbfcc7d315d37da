"""An S3 API at an address, with the bucket `states`, until standard input ends: `store.py ADDRESS PORT`."""

from __future__ import annotations

import sys

import boto3
from moto.server import ThreadedMotoServer


def started(address: str, port: int) -> tuple[ThreadedMotoServer, str]:
    """A server that has the bucket, and its endpoint; it chooses port 0 itself."""
    server = ThreadedMotoServer(address, port)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="states")
    return server, endpoint


def main(address: str, port: int) -> None:
    started(address, port)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
