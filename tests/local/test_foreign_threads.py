"""Jobs of `foreachBatch` from threads without the epoch's local properties."""

from concurrent.futures import ThreadPoolExecutor

from binshift.session import PROVIDER
from harness import STOCK, assert_same_results
from local.queries import QUERIES
from local.settings import NO_CHANGELOG, ONE_EPOCH


def test_a_query_whose_sink_works_in_a_pool_of_its_own_begins_migrates_and_begins_again(stream):
    """Without changelogs each commit uploads a snapshot, which has to be recognised as this run's."""
    query = QUERIES["count"]
    with ThreadPoolExecutor(1) as pool:

        def in_pool(run):
            keep = run._keep
            run._keep = lambda batch, epoch: pool.submit(keep, batch, epoch).result()
            return run

        run, oracle = (
            in_pool(
                stream(query.build, name, mode=query.mode, provider=provider, conf=ONE_EPOCH | NO_CHANGELOG)
            )
            for name, provider in (("run", PROVIDER), ("oracle", STOCK))
        )
        for r in (run, oracle):
            r.start()
            r.run(0, 1)
        run.attach().rescale(3, prepare=False)
        for r in (run, oracle):
            r.run(2, 3, 4, 5, 6, 7)
            r.stop()
            # The next run begins first with a repeated epoch, and then with a new one.
            r.forget(7)
            r.start()
            r.run(8)
            r.stop()
            r.start()
            r.run(9)
        assert run.attach().routing().partitions == 3
        assert_same_results(run, oracle)
