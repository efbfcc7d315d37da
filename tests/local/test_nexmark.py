"""Each query of the benchmark has its oracle's results, while its state migrates twice."""

import os

import pytest

import nexmark
from binshift import AllAtOnce, Batched
from harness import STOCK, StreamRun, until
from local.migrations import AT_FULL_SPEED

RATE, EPOCH_SECONDS, EPOCHS = 250, 2.0, 7
#: Enough for a migration that waits for copies, even if background threads hardly get a processor.
MORE_EPOCHS = 60
#: Few people and auctions at a time, so that small windows have events of each.
SHAPE = nexmark.Shape(in_flight_auctions=20, active_people=20)
WINDOWS = nexmark.Windows(
    auction_ms=SHAPE.longest_auction_ms(RATE),
    average_ms=2_000,
    last_prices=3,
    hot_ms=4_000,
    highest_ms=4_000,
    highest_slide_ms=1_000,
    new_user_ms=5_000,
    session_gap_ms=1_000,
    count_ms=3_000,
)
#: The migrations by the epoch after which they are submitted.
MIGRATIONS = {0: (4, Batched(16)), 3: (3, AllAtOnce())}
#: Only one epoch for each file: the watermark of the last epoch is that of the files before.
ONE_EPOCH = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
STATEFUL = [name for name, query in nexmark.QUERIES.items() if query.stateful]
#: Q5 has two aggregations; q6 has a join, an aggregation and a state function. Others are similar.
DEFAULT = {"q5", "q6"}
EACH = [pytest.param(name, marks=[pytest.mark.matrix] * (name not in DEFAULT)) for name in STATEFUL]


class Replay(StreamRun):
    """A run of a query over files of the generator."""

    @property
    def source(self):
        return nexmark.events(self.spark, self.input)

    def _keep(self, batch, epoch):
        self.outputs[epoch] = batch.toArrow()

    def feed(self, file):
        os.link(file, self.input / file.name)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("nexmark")
    return nexmark.write(directory, RATE, EPOCHS * EPOCH_SECONDS, 7, EPOCH_SECONDS, SHAPE)


@pytest.fixture
def replay(spark, tmp_path):
    runs = []

    def start(name, **kwargs):
        query = nexmark.QUERIES[name]
        run = Replay(
            spark, tmp_path, lambda df: query.build(df, WINDOWS), mode=query.mode, conf=ONE_EPOCH, **kwargs
        )
        runs.append(run)
        return run.start()

    yield start
    for run in runs:
        run.stop()


def assert_expected(run, name, files):
    query = nexmark.QUERIES[name]
    watermark_ms = nexmark.watermark(query, files[:-1], WINDOWS)
    expected = nexmark.expected(query, files, WINDOWS, watermark_ms)
    assert len(expected) > 5
    assert nexmark.settled(query, run.outputs) == expected


@pytest.mark.long
@pytest.mark.parametrize("name", EACH)
def test_a_query_gives_what_its_oracle_says_while_its_state_migrates(replay, files, name):
    run = replay(name)
    for epoch, file in enumerate(files):
        run.feed(file)
        run.query.processAllAvailable()
        if epoch in MIGRATIONS:
            run.attach().rescale(MIGRATIONS[epoch][0], strategy=MIGRATIONS[epoch][1], prepare=False)
    steps = run.attach().history()
    assert steps["partitions"].to_pylist() == [4, 4, 3]
    assert_expected(run, name, files)


@pytest.mark.long
@pytest.mark.parametrize("name", EACH)
def test_a_query_gives_what_its_oracle_says_while_bins_are_copied_before_they_move(replay, tmp_path, name):
    directory = tmp_path / "events"
    files = nexmark.write(directory, RATE, MORE_EPOCHS * EPOCH_SECONDS, 7, EPOCH_SECONDS, SHAPE)
    run = replay(name)
    run.feed(files[0])
    run.query.processAllAvailable()
    controller = run.attach()
    migration = controller.rescale(4, strategy=Batched(16))
    for fed, file in enumerate(files[1:], 2):
        run.feed(file)
        run.query.processAllAvailable()
        if fed >= EPOCHS and until(lambda: migration.status.is_over, seconds=0 if fed < AT_FULL_SPEED else 1):
            break
    report = migration.wait(0)
    assert report.bins_prepared > 0
    assert report.bins_shipped == report.bins_from_checkpoint == 0
    assert controller.history()["partitions"].to_pylist() == [4, 4]
    assert_expected(run, name, files[:fed])


@pytest.mark.matrix
@pytest.mark.parametrize("name", nexmark.QUERIES)
def test_the_same_query_gives_the_same_on_the_stock_provider(replay, files, name):
    run = replay(name, provider=STOCK)
    for file in files:
        run.feed(file)
    run.query.processAllAvailable()
    assert_expected(run, name, files)
