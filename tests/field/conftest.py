"""What the tests of the field need, by ordinary package clients, kept in build/field."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build/field"


def jars(name: str) -> list[Path]:
    """The jars that `<name>.xml` asks Maven for, without those that Spark has itself."""
    lib = BUILD / name
    if not lib.exists():
        staging = lib.with_suffix(".part")
        command = ["mvn", "-q", "-B", "-f", str(HERE / f"{name}.xml"), "dependency:copy-dependencies"]
        excluded = "-DexcludeGroupIds=io.netty,org.slf4j,commons-codec"
        command += [f"-DoutputDirectory={staging}", "-DincludeScope=runtime", excluded]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"Maven does not serve the jars of {name}:\n{done.stdout[-3000:]}"
        staging.rename(lib)
    return sorted(lib.glob("*.jar"))


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The endpoint of an S3 API on the loopback, with the bucket `states`."""
    boto3 = pytest.importorskip("boto3", reason="make field installs it")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="states")
    yield endpoint
    server.stop()
