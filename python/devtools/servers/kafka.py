"""A Kafka broker that is its own controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devtools.servers.jars import jars
from devtools.servers.process import Jvm, free_ports

__all__ = ["Kafka"]

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Kafka:
    """A server that runs while the context lasts.

    Parameters
    ----------
    folder : Path
        Gets its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        self._jvm = Jvm(jars("kafka"), folder)
        broker, controller = free_ports(2)
        self.servers = f"127.0.0.1:{broker}"
        # Doesn't log the attempts before the broker is ready.
        self._admin: Any = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self._settings = _SETTINGS.format(broker=broker, controller=controller, folder=folder)

    def __enter__(self) -> Kafka:
        settings = self._jvm.folder / "server.properties"
        settings.write_text(self._settings)
        cluster = "MkU3OEVBNTcwNTJENDM2Qg"
        self._jvm.run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
        self._jvm.start("kafka.Kafka", str(settings), is_ready=self._serves)
        return self

    def __exit__(self, *error: object) -> None:
        self._jvm.end()

    def create(self, topic: str, partitions: int) -> None:
        """Makes a topic."""
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)

    def _serves(self) -> bool:
        try:
            return bool(self._admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False
