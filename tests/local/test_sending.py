"""An old owner waits for its receivers when it sends, but for none of them for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness import Fault, until
from local.migrations import NEVER


@pytest.fixture
def shipping(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.shipping


@pytest.fixture
def sending(spark: SparkSession, shipping: Any) -> Iterator[Callable[[str], Any]]:
    """Creates senders to partitions 1 and 2 that have a timeout and room for one chunk of 600 bytes."""
    with ExitStack() as opened:
        context = spark.sparkContext._jsc.sc()
        yield lambda timeout: opened.enter_context(
            closing(shipping.TestSentChunks.open(context, timeout, "1k"))
        )


def test_a_receiver_that_fetches_nothing_is_given_up_and_the_others_go_on(
    sending: Callable[[str], Any],
) -> None:
    sent = sending("400ms")
    sent.send(1, 0, 600)
    begun = time.monotonic()
    sent.send(2, 0, 600)
    # Half of the timeout, since the receiver gives up after all of it.
    assert time.monotonic() - begun > 0.2
    assert sent.freed(1) == 1
    for index in range(1, 4):
        sent.tell(2, index)
        sent.send(2, index, 600)
        # A receiver that was given up finds that everything is gone.
        sent.send(1, index, 600)
    assert [sent.chunks(1), sent.freed(1)] == [4, 4]
    assert [sent.chunks(2), sent.freed(2)] == [4, 3]
    assert sent.isHere(2, 3)
    assert until(lambda: not any(sent.isHere(1, i) for i in range(4)))
    assert until(lambda: not any(sent.isHere(2, i) for i in range(3)))


def test_a_receiver_is_waited_for_within_the_timeout(
    spark: SparkSession, sending: Callable[[str], Any]
) -> None:
    threads = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestThreads
    sent = sending(NEVER)
    sent.send(1, 0, 600)
    other = Thread(target=sent.send, args=[2, 0, 600])
    other.start()
    assert until(lambda: threads.isIn("awaitRoom"))
    assert not sent.isHere(2, 0)
    assert sent.isHere(1, 0)
    sent.tell(1, 1)
    other.join()
    assert sent.isHere(2, 0)
    sent.tell(2, 1)
    sent.send(1, 1, 600)
    assert [sent.chunks(1), sent.freed(1)] == [2, 1]
    assert sent.isHere(1, 1)


def test_a_receiver_that_gives_up_is_not_waited_for(spark: SparkSession, sending: Callable[[str], Any]) -> None:
    threads = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestThreads
    sent = sending(NEVER)
    sent.send(1, 0, 600)
    other = Thread(target=sent.send, args=[2, 0, 600], daemon=True)
    other.start()
    assert until(lambda: threads.isIn("awaitRoom"))
    # The receiver had got something before, which the sender doesn't know.
    sent.tell(1, 1)
    sent.giveUp(1)
    other.join(60)
    assert sent.isHere(2, 0)
    # Chunks that the receiver doesn't want take no room, even when there is none.
    sent.send(1, 1, 600)
    assert [sent.chunks(1), sent.freed(1)] == [2, 2]
    assert until(lambda: not any(sent.isHere(1, i) for i in range(2)))
    sent.tell(2, 1)
    sent.send(2, 1, 600)
    assert [sent.chunks(2), sent.freed(2)] == [2, 1]


def test_a_receiver_says_that_it_gives_up_unless_another_one_is_served(sending: Callable[[str], Any]) -> None:
    sent = sending(NEVER)
    sent.serveAnother(1)
    assert "another receiver asks for them" in sent.receiveInVain(1)
    sent.send(2, 0, 600)
    sent.tell(2, 1)
    # There is room once the sender hears this.
    sent.send(2, 1, 600)
    # That executor may be gone, so a receiver that has got nothing speaks.
    sent.serveAnother(2)
    assert "went to another receiver" in sent.receiveInVain(2)
    # Anything that the first receiver said came before this.
    assert until(lambda: sent.freed(2) == 2)
    sent.send(1, 0, 600)
    assert sent.isHere(1, 0)


def test_who_asks_for_bins_all_the_time_hears_that_nobody_sends(spark: SparkSession, shipping: Any) -> None:
    with closing(shipping.TestReceiver.open(spark.sparkContext._jsc.sc())) as receiver:
        # The old owner may still commit the version.
        assert receiver.look(0) == ""
        assert until(lambda: "nobody sends any more" in receiver.look(1))


@pytest.fixture
def sources(spark: SparkSession, shipping: Any) -> Iterator[Any]:
    """Nine old owners that can be asked for rows."""
    with closing(shipping.TestRowSources.open(spark.sparkContext._jsc.sc(), 9)) as sources:
        yield sources


def test_requests_for_rows_are_looked_for_again_after_a_thread_ended_with_an_error(sources: Any) -> None:
    with Fault("rows.poll", "die") as fault:
        assert until(lambda: fault.happened)
    for source in range(9):
        sources.ask(source)
    assert until(lambda: all(sources.isAsked(source) for source in range(9)))


def test_an_old_owner_whose_requests_cannot_be_looked_for_keeps_no_other_from_its_own(sources: Any) -> None:
    with Fault("rows.poll.4", "throw", always=True):
        for source in range(9):
            sources.ask(source)
        assert until(lambda: all(sources.isAsked(source) for source in range(9) if source != 4))
        assert not sources.isAsked(4)
    assert until(lambda: sources.isAsked(4))
