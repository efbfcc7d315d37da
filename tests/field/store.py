"""An S3 API at an address, with the bucket `states`, until standard input ends: `store.py ADDRESS PORT`."""

from __future__ import annotations

import sys

import boto3
from moto.server import ThreadedMotoServer


def main(address: str, port: int) -> None:
    server = ThreadedMotoServer(address, port)
    server.start()
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://{address}:{port}", **keys).create_bucket(Bucket="states")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
