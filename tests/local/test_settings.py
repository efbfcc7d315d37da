"""A query keeps the settings of its start, also if its session changes them for the next query."""

from binshift import AllAtOnce
from binshift.session import CHANGELOG_KEY
from local.mailbox import Mailbox
from local.migrations import feed_until, finish
from local.queries import count_by_key
from local.settings import MIN_DELTAS, NO_CHANGELOG

RETAIN = "spark.sql.streaming.minBatchesToRetain"
REQUESTS = "spark.sql.streaming.stateStore.binshift.requests."


def partitions_there(run):
    return {int(f.name) for f in (run.checkpoint / "state/0").iterdir() if f.name.isdigit()}


def test_a_query_keeps_the_settings_that_its_session_had_when_it_was_started(stream, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery staple")
    signed = {REQUESTS + "enabled": "signed", REQUESTS + "secretFile": str(secret)}
    conf = {CHANGELOG_KEY: "true", RETAIN: "2", MIN_DELTAS: "2"}
    run = stream(count_by_key, conf=conf | signed).start()
    # It has no data yet, and so has planned no epoch.
    run.query.processAllAvailable()
    for key, value in ({REQUESTS + "enabled": "true", RETAIN: "100000"} | NO_CHANGELOG).items():
        run.spark.conf.set(key, value)
    run.run(0)
    box = Mailbox(run)
    unsigned = box.ask("status")
    box.wait()
    assert box.error(unsigned)["condition"] == "REQUEST_NOT_SIGNED"
    more = run.attach().rescale(4, strategy=AllAtOnce())
    epoch = finish(run, more, 1)
    assert more.wait(0).bins_prepared > 0
    epoch = finish(run, run.attach().rescale(2, strategy=AllAtOnce(), prepare=False), epoch)
    feed_until(run, epoch, lambda: partitions_there(run) == {0, 1})
