"""Writes rows to Kafka in transactions, some of which are aborted, and counts the committed ones."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

_ROWS = 200
_KEYS = 500
_SECONDS = 0.1


class Load(threading.Thread):
    """Writes about 2,000 rows per second while it is entered; `counts` has the committed rows."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._topic = topic
        self._producer: Any = Producer({"bootstrap.servers": servers, "transactional.id": f"load-{topic}"})
        self._stopping = threading.Event()

    def __enter__(self) -> Load:
        self._producer.init_transactions(60)
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self.join()
        assert self.failure is None, self.failure

    def run(self) -> None:
        number = 0
        try:
            while not self._stopping.wait(_SECONDS):
                self._transaction(number)
                number += 1
        except BaseException as error:
            self.failure = error

    def _transaction(self, number: int) -> None:
        """Writes a transaction. Every third one is aborted after its rows have reached the broker."""
        keys = [f"key{(number * 37 + i * i) % _KEYS}" for i in range(_ROWS)]
        self._producer.begin_transaction()
        for key in keys:
            self._producer.produce(self._topic, key=key, value=str(number))
        self._producer.flush(60)
        if number % 3 == 2:
            self._producer.abort_transaction(60)
        else:
            self._producer.commit_transaction(60)
            self.counts.update(keys)


def values_of(servers: str, topic: str) -> dict[str, list[int]]:
    """The values of a topic for each key, oldest first."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        values: dict[str, list[int]] = {}
        left = set(partitions)
        while left:
            message = consumer.poll(60)
            assert message is not None, f"nothing came of {topic}"
            if message.error() is None:
                values.setdefault(message.key().decode(), []).append(int(message.value()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
        return values
    finally:
        consumer.close()
