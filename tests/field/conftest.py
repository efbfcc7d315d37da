"""Servers of the field tests; ordinary package clients download them into build/field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.servers.hdfs import Hdfs


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The endpoint of an S3 API on the loopback interface, with the bucket `states`."""
    pytest.importorskip("boto3", reason="make field installs it")
    pytest.importorskip("moto.server")
    from field.store import started

    server, endpoint = started("127.0.0.1", 0)
    yield endpoint
    server.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an HDFS on the loopback interface."""
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server.uri


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A Kafka broker on the loopback interface."""
    pytest.importorskip("confluent_kafka", reason="make field installs it")
    from devtools.servers.kafka import Kafka

    folder: Path = tmp_path_factory.mktemp("kafka")
    with Kafka(folder) as server:
        yield server
