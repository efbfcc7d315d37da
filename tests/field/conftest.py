"""Servers of the field tests; ordinary package clients download them into build/field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from devtools.servers.hdfs import Hdfs
from field.places import Place, hdfs_place, s3_place


@pytest.fixture(scope="session")
def s3_store() -> Iterator[Any]:
    """An S3 API on the loopback interface, with the bucket `states`."""
    with _store() as store:
        yield store


@pytest.fixture(scope="session")
def s3(s3_store: Any) -> str:
    """Its endpoint."""
    return str(s3_store.endpoint)


@pytest.fixture(scope="session")
def careless_s3_store() -> Iterator[Any]:
    """An S3 API that overwrites files although a client asks it not to."""
    with _store(is_careless=True) as store:
        yield store


@contextmanager
def _store(**kind: bool) -> Iterator[Any]:
    pytest.importorskip("boto3", reason="make field installs it")
    pytest.importorskip("moto.server")
    from field.store import Store

    store = Store("127.0.0.1", 0, **kind)
    store.start()
    yield store
    store.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an HDFS on the loopback interface."""
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server.uri


@pytest.fixture(params=["s3", "hdfs"])
def place(request: pytest.FixtureRequest) -> Place:
    made = {"s3": s3_place, "hdfs": hdfs_place}[request.param]
    return made(request.getfixturevalue(request.param))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A Kafka broker on the loopback interface."""
    pytest.importorskip("confluent_kafka", reason="make field installs it")
    from devtools.servers.kafka import Kafka

    folder: Path = tmp_path_factory.mktemp("kafka")
    with Kafka(folder) as server:
        yield server
